/* Subscribers and members of queue groups: each message is looked at, counted, and checked against what must come.
 *
 * NATS keeps the order of one publisher's messages to one subscriber. So a subscriber's next number of a publisher and subject
 * is known; a member's must be greater than its last one, and no other member may have had it.
 */
#include "nats.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    SUBJECT_DIGITS = 5,
    /* A slow subscriber whose server sends nothing for this long has got all that it will get. */
    SLOW_QUIET_MS = 500,
    SUB_LINE_BYTES_MAX = 300,
    SUB_BATCH_BYTES = 1 << 16,
};

/* Subscribe to all subjects, each by itself or by one pattern. An idle one has subjects of its own. */
void nats_subscribe(struct nats_connection *connection, const struct options *options) {
    static char lines[SUB_BATCH_BYTES + SUB_LINE_BYTES_MAX];
    char subject[96], queue[80] = "";
    bool idle = connection->role == NATS_IDLE;
    uint32_t count = idle ? options->subscriptions : options->wildcard ? 1 : options->topics;
    if (connection->role == NATS_MEMBER) snprintf(queue, sizeof queue, " %s", options->queue);
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (idle) snprintf(subject, sizeof subject, "%s.%u.%u", options->topic, connection->index, i);
        else if (options->wildcard) snprintf(subject, sizeof subject, options->topics == 1 ? "%s" : "%s.*", options->topic);
        else nats_subject(subject, sizeof subject, options, i);
        used += (size_t)sprintf(lines + used, "SUB %s%s %u\r\n", subject, queue, i + 1);
        if (used < SUB_BATCH_BYTES && i + 1 < count) continue;
        nats_command(connection, lines, used);
        used = 0;
    }
}

void nats_consumer_prepare(struct nats_run *nats, struct nats_connection *connection) {
    size_t slots = (size_t)nats->run.options.connections * nats->run.options.topics;
    connection->next = calloc(slots, sizeof *connection->next);
    if (connection->role == NATS_MEMBER && !connection->taker->seen) connection->taker->seen = calloc(nats->run.options.messages / 8 + 1, 1);
    if (!connection->next || (connection->role == NATS_MEMBER && !connection->taker->seen)) fail("no memory for the numbers of %zu streams", slots);
}

/* Which subject it is, by its text; the sid must be that of the subscription to it. */
static uint32_t subject_index(const struct options *options, const struct nats_operation *operation) {
    size_t size = strlen(options->topic);
    uint32_t index = 0;
    bool right = operation->subject_size == size + (options->topics == 1 ? 0 : 1 + SUBJECT_DIGITS) && !memcmp(operation->subject, options->topic, size);
    if (right && options->topics > 1) {
        const uint8_t *at = operation->subject + size;
        right = *at++ == '.';
        for (int i = 0; i < SUBJECT_DIGITS; i++, at++) {
            right = right && *at >= '0' && *at <= '9';
            index = index * 10 + (uint32_t)(*at - '0');
        }
        right = right && index < options->topics;
    }
    if (!right) nats_unexpected(operation);
    if (operation->sid != (options->wildcard ? 1 : index + 1)) fail("subject %u came with sid %llu", index, (unsigned long long)operation->sid);
    return index;
}

static void check_member(struct nats_run *nats, struct nats_connection *connection, size_t slot, uint64_t number) {
    if (number < connection->next[slot]) fail("out of order or twice: number %llu of stream %zu at member %u", (unsigned long long)number, slot, connection->index);
    uint64_t bit = nats->first_bits[slot] + number;
    uint8_t *byte = &connection->taker->seen[bit / 8], mask = (uint8_t)(1u << bit % 8);
    if (*byte & mask) fail("twice: number %llu of stream %zu at member %u", (unsigned long long)number, slot, connection->index);
    *byte |= mask;
}

static void check_subscriber(const struct nats_connection *connection, size_t slot, uint64_t number) {
    uint64_t next = connection->next[slot];
    if (number == next) return;
    fail("%s: number %llu of stream %zu instead of %llu at subscriber %u", number > next ? "lost" : "out of order or twice",
         (unsigned long long)number, slot, (unsigned long long)next, connection->index);
}

static void take_message(struct nats_run *nats, struct nats_connection *connection, const struct nats_operation *operation) {
    const struct options *options = &nats->run.options;
    uint32_t subject = subject_index(options, operation), publisher;
    uint64_t number;
    if (operation->body_size != options->size_bytes) fail("a message of %zu bytes", operation->body_size);
    if (options->mode == MODE_NATS_SUB) { /* others have made the body: it has no number */
        connection->got++;
        connection->taker->received++;
        return;
    }
    memcpy(&number, operation->body + NATS_NUMBER_AT, sizeof number);
    memcpy(&publisher, operation->body + NATS_PUBLISHER_AT, sizeof publisher);
    if (publisher >= options->connections) fail("a message of publisher %u", publisher);
    size_t slot = (size_t)publisher * options->topics + subject;
    if (number >= nats_quota(options, publisher, subject)) fail("number %llu of stream %zu was never sent", (unsigned long long)number, slot);
    if (connection->role == NATS_MEMBER) check_member(nats, connection, slot, number);
    else check_subscriber(connection, slot, number);
    connection->next[slot] = number + 1;
    connection->got++;
    connection->taker->received++;
}

static void after_messages(struct nats_run *nats, struct nats_taker *taker, uint64_t before) {
    struct run *run = &nats->run;
    uint64_t slowest = UINT64_MAX;
    for (uint32_t i = 0; i < nats->taker_count; i++)
        if (!nats->takers[i].slow && nats->takers[i].received < slowest) slowest = nats->takers[i].received;
    run->received = slowest;
    mark_progress(run, run->received, run->options.messages);
    if (before < run->options.messages && taker->received >= run->options.messages) nats_one_less(nats);
}

void nats_consumer_receive(struct nats_run *nats, struct nats_connection *connection) {
    struct nats_operation operation;
    size_t position = 0;
    uint64_t before = connection->taker->received;
    if (!nats_receive(connection)) return;
    while (!connection->base.done && nats_next(connection, &position, &operation)) {
        if (operation.verb == NATS_MESSAGE) take_message(nats, connection, &operation);
        else if (operation.verb == NATS_PING) nats_answer_ping(nats, connection);
        else if (operation.verb == NATS_PONG && nats->checking) finish_connection(&nats->run, &connection->base);
        else if (operation.verb != NATS_INFO) nats_unexpected(&operation);
    }
    drop_input(&connection->base, position);
    if (connection->taker->received != before) after_messages(nats, connection->taker, before);
}

/* After the run: what has come for a subscriber that did not read. It must be in order and without gaps as far as it goes; the
 * server may have ended it, in the middle of a message as well. */
void nats_slow_drain(struct nats_run *nats, struct nats_connection *connection) {
    struct connection *base = &connection->base;
    struct pollfd waiting = {.fd = base->fd, .events = POLLIN};
    struct nats_operation operation;
    for (;;) {
        size_t position = 0;
        while (nats_next(connection, &position, &operation))
            if (operation.verb == NATS_MESSAGE) take_message(nats, connection, &operation);
        drop_input(base, position);
        if (now_ns() > nats->run.deadline_ns || poll(&waiting, 1, SLOW_QUIET_MS) <= 0) return;
        ssize_t count = recv(base->fd, base->input + base->input_used, base->input_room - base->input_used, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count < 0 && errno != ECONNRESET) fail("recv: %s", strerror(errno));
        if (count <= 0) {
            connection->closed = true;
            return;
        }
        base->input_used += (size_t)count;
    }
}
