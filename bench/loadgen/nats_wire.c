/* The NATS protocol as a client speaks it: the greeting, and the operations that come. */
#include "nats.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* As of the NSQ half: one read takes up to this much; a connection that only waits gets little, but room for an INFO. */
    INPUT_ROOM_BYTES = 1 << 20,
    INPUT_ROOM_IDLE_BYTES = 4096,
    OUTPUT_ROOM_BYTES = 4096,
    /* Longer than any line that is expected here. */
    LINE_BYTES_MAX = 3500,
    NUMBER_DIGITS_MAX = 9,
};

/* One subject has the name that was asked for, several have a number behind it, always of five digits. */
void nats_subject(char *name, size_t room, const struct options *options, uint32_t index) {
    if (options->topics == 1) snprintf(name, room, "%s", options->topic);
    else snprintf(name, room, "%s.%05u", options->topic, index);
}

static _Noreturn void unexpected_line(const uint8_t *at, size_t size_bytes) {
    fail("unexpected: %.*s", (int)(size_bytes < 300 ? size_bytes : 300), (const char *)at);
}

_Noreturn void nats_unexpected(const struct nats_operation *operation) {
    static const char *const NAMES[] = {"message", "PING", "PONG", "INFO"};
    if (operation->verb != NATS_MESSAGE) fail("unexpected %s", NAMES[operation->verb]);
    fail("unexpected message on %.*s", (int)operation->subject_size, (const char *)operation->subject);
}

static const uint8_t *number_token(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    const uint8_t *first = at;
    for (*value = 0; at < end && *at >= '0' && *at <= '9'; at++) *value = *value * 10 + (uint64_t)(*at - '0');
    return at == first || at - first > NUMBER_DIGITS_MAX ? NULL : at;
}

static const uint8_t *text_token(const uint8_t *at, const uint8_t *end, const uint8_t **token, size_t *size_bytes) {
    *token = at;
    while (at < end && *at > ' ') at++;
    *size_bytes = (size_t)(at - *token);
    return *size_bytes && at < end && *at == ' ' ? at + 1 : NULL;
}

/* MSG <subject> <sid> [<reply>] <size>, between the verb and the end of the line. */
static bool message_line(const uint8_t *at, const uint8_t *end, struct nats_operation *operation) {
    uint64_t size;
    const uint8_t *token;
    operation->reply_size = 0;
    if (!(at = text_token(at, end, &operation->subject, &operation->subject_size))) return false;
    if (!(at = number_token(at, end, &operation->sid)) || at == end || *at++ != ' ') return false;
    token = at;
    if (!(at = number_token(at, end, &size)) || at != end) {
        if (!(at = text_token(token, end, &operation->reply, &operation->reply_size))) return false;
        if (!(at = number_token(at, end, &size)) || at != end) return false;
    }
    operation->body_size = size;
    return true;
}

static bool is_word(const uint8_t *line, size_t size_bytes, const char *word) {
    return size_bytes == strlen(word) && !memcmp(line, word, size_bytes);
}

/* The next whole operation; false when there is none yet. Anything that is not one ends the run. */
bool nats_next(struct nats_connection *connection, size_t *position, struct nats_operation *operation) {
    const uint8_t *at = connection->base.input + *position, *end = connection->base.input + connection->base.input_used;
    const uint8_t *feed = memchr(at, '\n', (size_t)(end - at));
    if (!feed) {
        if (end - at > LINE_BYTES_MAX) unexpected_line(at, (size_t)(end - at));
        return false;
    }
    if (feed == at || feed[-1] != '\r') unexpected_line(at, (size_t)(feed - at));
    size_t size = (size_t)(feed - 1 - at);
    if (size > 4 && !memcmp(at, "MSG ", 4)) {
        if (!message_line(at + 4, feed - 1, operation)) unexpected_line(at, size);
        if (operation->body_size + 2 > connection->base.input_room - LINE_BYTES_MAX) fail("a message of %zu bytes", operation->body_size);
        if ((size_t)(end - feed - 1) < operation->body_size + 2) return false;
        operation->body = feed + 1;
        const uint8_t *behind = operation->body + operation->body_size;
        if (behind[0] != '\r' || behind[1] != '\n') fail("no line end behind a message of %zu bytes", operation->body_size);
        operation->verb = NATS_MESSAGE;
        *position = (size_t)(behind + 2 - connection->base.input);
        return true;
    }
    if (is_word(at, size, "PING")) operation->verb = NATS_PING;
    else if (is_word(at, size, "PONG")) operation->verb = NATS_PONG;
    else if (size > 5 && !memcmp(at, "INFO ", 5)) operation->verb = NATS_INFO;
    else unexpected_line(at, size);
    *position = (size_t)(feed + 1 - connection->base.input);
    return true;
}

void nats_answer_ping(struct nats_run *nats, struct nats_connection *connection) {
    memcpy(reserve_output(&connection->base, 6), "PONG\r\n", 6);
    flush_output(&connection->base);
    watch_output(&nats->run, &connection->base, output_waits(&connection->base));
}

/* Before the loop starts: wait for an operation of this kind. Others may come before it: INFO at any time, PING on a slow day. */
static void await_operation(struct nats_connection *connection, enum nats_verb verb) {
    struct nats_operation operation;
    for (;;) {
        size_t position = 0;
        while (nats_next(connection, &position, &operation)) {
            if (operation.verb == NATS_PING) nats_command(connection, "PONG\r\n", 6);
            else if (operation.verb != verb && operation.verb != NATS_INFO) nats_unexpected(&operation);
            if (operation.verb == verb) {
                drop_input(&connection->base, position);
                return;
            }
        }
        drop_input(&connection->base, position);
        if (!connection_receive(&connection->base)) fail("no answer in time");
    }
}

/* Send while waiting; only before the loop starts. */
void nats_command(struct nats_connection *connection, const char *bytes, size_t size_bytes) {
    send_all(&connection->base, bytes, size_bytes);
}

/* Have more input; false when nothing is there now. */
bool nats_receive(struct nats_connection *connection) {
    if (!connection->early) return connection_receive(&connection->base);
    connection->early = false;
    return true;
}

/* Wait until the server has handled all that was sent before, then wait no more for anything. */
void nats_settle(struct nats_connection *connection) {
    nats_command(connection, "PING\r\n", 6);
    await_operation(connection, NATS_PONG);
    connection->early = connection->base.input_used > 0;
    connection_start(&connection->base);
}

/* Connect and introduce ourselves as client libraries do; an INFO comes first. */
void nats_open(struct nats_connection *connection, const struct options *options, const char *host, uint16_t port) {
    char line[1024];
    struct connection *base = &connection->base;
    base->input_room = connection->role == NATS_IDLE ? INPUT_ROOM_IDLE_BYTES : INPUT_ROOM_BYTES + options->size_bytes;
    base->input = allocate(base->input_room);
    base->output_room = OUTPUT_ROOM_BYTES + (connection->role == NATS_IDLE ? 0 : options->size_bytes);
    base->output = allocate(base->output_room);
    connect_socket(base, host, port);
    await_operation(connection, NATS_INFO);
    int size = snprintf(line, sizeof line,
        "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":true,\"headers\":true,\"no_responders\":true,\"name\":\"loadgen\","
        "\"lang\":\"c\",\"version\":\"1\",\"protocol\":1%s%s%s}\r\n",
        options->auth ? ",\"auth_token\":\"" : "", options->auth ? options->auth : "", options->auth ? "\"" : "");
    if (size >= (int)sizeof line) fail("a secret of %zu bytes", strlen(options->auth));
    nats_command(connection, line, (size_t)size);
}
