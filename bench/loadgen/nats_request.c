/* Request and reply: one question at a time, each with an inbox of its own; asking to answer is timed. */
#include "nats.h"

#include <stdio.h>
#include <string.h>

static const char INBOX[] = "_INBOX.loadgen";

void nats_ask(struct nats_run *nats, struct nats_connection *connection) {
    const struct options *options = &nats->run.options;
    char line[256];
    int size = snprintf(line, sizeof line, "PUB %s %s.%08llx %u\r\n", options->topic, INBOX, (unsigned long long)connection->asked, options->size_bytes);
    uint8_t *at = reserve_output(&connection->base, (size_t)size + options->size_bytes + 2);
    memcpy(at, line, (size_t)size);
    memset(at + size, 'x', options->size_bytes);
    memcpy(at + size + NATS_NUMBER_AT, &connection->asked, sizeof connection->asked);
    memcpy(at + size + options->size_bytes, "\r\n", 2);
    connection->asked++;
    connection->asked_at_ns = now_ns();
    flush_output(&connection->base);
    watch_output(&nats->run, &connection->base, output_waits(&connection->base));
}

static void take_answer(struct nats_run *nats, struct nats_connection *connection, const struct nats_operation *operation) {
    struct run *run = &nats->run;
    uint64_t number, now = now_ns();
    char subject[64];
    int size = snprintf(subject, sizeof subject, "%s.%08llx", INBOX, (unsigned long long)(connection->asked - 1));
    if (operation->subject_size != (size_t)size || memcmp(operation->subject, subject, (size_t)size)) nats_unexpected(operation);
    if (operation->body_size != run->options.size_bytes) fail("an answer of %zu bytes", operation->body_size);
    memcpy(&number, operation->body + NATS_NUMBER_AT, sizeof number);
    if (number != connection->asked - 1) fail("the answer to question %llu instead of %llu", (unsigned long long)number, (unsigned long long)(connection->asked - 1));
    if (run->sample_count < run->sample_room) run->samples_ns[run->sample_count++] = now - connection->asked_at_ns;
    run->published = connection->asked;
    mark_progress(run, run->published, run->options.messages);
}

void nats_requester_receive(struct nats_run *nats, struct nats_connection *connection) {
    struct run *run = &nats->run;
    struct nats_operation operation;
    size_t position = 0;
    bool answered = false;
    if (!nats_receive(connection)) return;
    while (nats_next(connection, &position, &operation)) {
        if (operation.verb == NATS_PING) nats_answer_ping(nats, connection);
        else if (operation.verb == NATS_MESSAGE && !answered && run->published < connection->asked) {
            take_answer(nats, connection, &operation);
            answered = true;
        } else if (operation.verb != NATS_INFO) nats_unexpected(&operation);
    }
    drop_input(&connection->base, position);
    if (!answered) return;
    if (connection->asked < run->options.messages) nats_ask(nats, connection);
    else nats_one_less(nats);
}

void nats_responder_receive(struct nats_run *nats, struct nats_connection *connection) {
    struct nats_operation operation;
    size_t position = 0;
    char line[256];
    if (!nats_receive(connection)) return;
    while (nats_next(connection, &position, &operation)) {
        if (operation.verb == NATS_PING) nats_answer_ping(nats, connection);
        if (operation.verb == NATS_PING || operation.verb == NATS_INFO) continue;
        if (operation.verb != NATS_MESSAGE || !operation.reply_size) nats_unexpected(&operation);
        int size = snprintf(line, sizeof line, "PUB %.*s %zu\r\n", (int)operation.reply_size, (const char *)operation.reply, operation.body_size);
        if (size >= (int)sizeof line) fail("a reply subject of %zu bytes", operation.reply_size);
        uint8_t *at = reserve_output(&connection->base, (size_t)size + operation.body_size + 2);
        memcpy(at, line, (size_t)size);
        memcpy(at + size, operation.body, operation.body_size);
        memcpy(at + size + operation.body_size, "\r\n", 2);
    }
    drop_input(&connection->base, position);
    flush_output(&connection->base);
    watch_output(&nats->run, &connection->base, output_waits(&connection->base));
}
