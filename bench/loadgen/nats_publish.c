/* Publishers: rounds of prepared messages, a PING behind each; the PONG says that the server has taken them. */
#include "nats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* A round is at least this long, so that one send() carries many small messages. */
    ROUND_BYTES_MIN = 1 << 18,
    ROUND_BYTES_MAX = 1 << 28,
    LINE_BYTES_MAX = 160,
    /* Behind the messages of a round: PING, and a PONG for each PING of the server's. */
    TAIL_BYTES_MAX = 512,
};

/* How many messages a publisher sends to a subject: they go round the subjects, the remainder to the first. */
uint64_t nats_quota(const struct options *options, uint32_t publisher, uint32_t subject) {
    uint64_t all = options->messages / options->connections + (publisher < options->messages % options->connections);
    return all / options->topics + (subject < all % options->topics);
}

static void round_build(struct nats_round *round, const struct options *options, uint32_t publisher) {
    size_t message_bytes_max = LINE_BYTES_MAX + (size_t)options->size_bytes + 2;
    char subject[96], line[LINE_BYTES_MAX];
    nats_subject(subject, sizeof subject, options, 0);
    size_t message_bytes = (size_t)snprintf(line, sizeof line, "PUB %s %u\r\n", subject, options->size_bytes) + options->size_bytes + 2;
    uint32_t repeats = 1;
    while (repeats * options->topics * message_bytes < ROUND_BYTES_MIN) repeats++;
    round->count = repeats * options->topics;
    if (round->count * message_bytes_max > ROUND_BYTES_MAX) fail("subjects x size is over 256 MiB");
    round->bytes = allocate(round->count * message_bytes_max + TAIL_BYTES_MAX);
    round->starts = allocate((round->count + 1) * sizeof *round->starts);
    round->bodies = allocate(round->count * sizeof *round->bodies);
    uint8_t *at = round->bytes;
    uint64_t state = 88172645463325252ULL + publisher;
    for (uint32_t i = 0; i < round->count; i++) {
        round->starts[i] = (size_t)(at - round->bytes);
        nats_subject(subject, sizeof subject, options, i % options->topics);
        at += sprintf((char *)at, "PUB %s %u\r\n", subject, options->size_bytes);
        round->bodies[i] = (uint32_t)(at - round->bytes);
        fill_body(at, options->size_bytes, &state);
        memcpy(at + NATS_PUBLISHER_AT, &publisher, sizeof publisher);
        at += options->size_bytes;
        memcpy(at, "\r\n", 2);
        at += 2;
    }
    round->starts[round->count] = (size_t)(at - round->bytes);
}

void nats_publisher_prepare(struct nats_run *nats, struct nats_connection *connection) {
    const struct options *options = &nats->run.options;
    round_build(&connection->round, options, connection->index);
    for (uint32_t subject = 0; subject < options->topics; subject++) connection->quota += nats_quota(options, connection->index, subject);
}

/* The next round: its numbers go on where those of the one before ended, subject by subject. */
static void begin_round(struct nats_run *nats, struct nats_connection *connection) {
    struct nats_round *round = &connection->round;
    uint64_t left = connection->quota - connection->begun, topics = nats->run.options.topics;
    uint32_t count = left < round->count ? (uint32_t)left : round->count;
    uint64_t number = connection->begun / topics;
    for (uint32_t i = 0, subject = 0; i < count; i++) {
        memcpy(round->bytes + round->bodies[i] + NATS_NUMBER_AT, &number, sizeof number);
        if (++subject == topics) {
            subject = 0;
            number++;
        }
    }
    /* What stands behind the last message of a run may be overwritten: it is not sent again. */
    uint8_t *tail = round->bytes + round->starts[count];
    memcpy(tail, "PING\r\n", 6);
    for (tail += 6; connection->pongs_owed && tail + 6 <= round->bytes + round->starts[count] + TAIL_BYTES_MAX; connection->pongs_owed--, tail += 6)
        memcpy(tail, "PONG\r\n", 6);
    connection->begun += count;
    connection->round_sent = 0;
    connection->round_end = (size_t)(tail - round->bytes);
}

static bool may_begin(const struct nats_run *nats, const struct nats_connection *connection) {
    const struct run *run = &nats->run;
    if (connection->begun == connection->quota) return false;
    uint64_t sent = 0;
    if (!run->options.lead_max) return true;
    for (uint32_t i = 0; i < nats->connection_count; i++)
        if (nats->connections[i].role == NATS_PUBLISHER) sent += nats->connections[i].begun;
    /* Whoever waits for nothing may always send: a lead that is less than a round must not stop the run. */
    return sent == run->received || sent + connection->round.count <= run->received + run->options.lead_max;
}

/* Send one round at most: those who receive get their turn in between. */
void nats_publisher_push(struct nats_run *nats, struct nats_connection *connection) {
    struct run *run = &nats->run;
    if (connection->base.done) return;
    if (connection->round_sent == connection->round_end) {
        if (run->options.follow) run->received = lead_heard();
        if (!may_begin(nats, connection)) {
            watch_output(run, &connection->base, false);
            return;
        }
        begin_round(nats, connection);
    }
    while (connection->round_sent < connection->round_end) {
        ssize_t count = send(connection->base.fd, connection->round.bytes + connection->round_sent, connection->round_end - connection->round_sent, MSG_NOSIGNAL);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (count < 0) fail("send: %s", strerror(errno));
        connection->round_sent += (size_t)count;
    }
    watch_output(run, &connection->base, connection->round_sent < connection->round_end || (connection->begun < connection->quota && may_begin(nats, connection)));
}

static void take_pong(struct nats_run *nats, struct nats_connection *connection) {
    struct run *run = &nats->run;
    uint64_t left = connection->quota - connection->taken;
    uint64_t count = left < connection->round.count ? left : connection->round.count;
    if (connection->taken + count > connection->begun) fail("more PONGs than PINGs");
    connection->taken += count;
    run->published += count;
    if (!nats->taker_count) mark_progress(run, run->published, run->options.messages);
    if (connection->taken == connection->quota) {
        finish_connection(run, &connection->base);
        nats_one_less(nats);
    }
}

void nats_publisher_receive(struct nats_run *nats, struct nats_connection *connection) {
    struct nats_operation operation;
    size_t position = 0;
    if (!nats_receive(connection)) return;
    while (!connection->base.done && nats_next(connection, &position, &operation)) {
        if (operation.verb == NATS_PONG) take_pong(nats, connection);
        else if (operation.verb == NATS_PING) connection->pongs_owed++; /* it goes behind the next round */
        else if (operation.verb != NATS_INFO) nats_unexpected(&operation);
    }
    drop_input(&connection->base, position);
}
