/* Connections and frames: connect, greet, subscribe (waiting), then read and write without waiting. */
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* One read takes up to this much: some thousand messages of the usual 200 bytes. */
    INPUT_ROOM_BYTES = 1 << 20,
    /* Connections that only wait get little, so that thousands fit. */
    INPUT_ROOM_IDLE_BYTES = 4096,
    /* Of a connection that is one of thousands, and the least that takes a whole chunk of snappy. */
    INPUT_ROOM_SMALL_BYTES = 1 << 17,
    CONNECTIONS_MANY = 1000,
    /* The server has this long for the answer to IDENTIFY or SUB. */
    ANSWER_TIMEOUT_S = 30,
};

static uint32_t get_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void put_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

bool is_response(const struct frame *frame, const char *text) {
    return frame->type == FRAME_RESPONSE && frame->size_bytes == strlen(text) && !memcmp(frame->data, text, frame->size_bytes);
}

_Noreturn void unexpected_frame(const struct frame *frame) {
    static const char *const NAMES[] = {"response", "error", "message"};
    if (frame->type == FRAME_MESSAGE) fail("unexpected message of %zu bytes", frame->size_bytes);
    fail("unexpected %s: %.*s", NAMES[frame->type], (int)(frame->size_bytes < 500 ? frame->size_bytes : 500), (const char *)frame->data);
}

/* Before the loop starts: what is sent is small, and waits until it has been taken. */
void send_all(struct connection *connection, const void *bytes, size_t size_bytes) {
    const char *at = bytes;
    while (size_bytes) {
        ssize_t count = send(connection->fd, at, size_bytes, MSG_NOSIGNAL);
        if (count <= 0) fail("send: %s", strerror(errno));
        at += count;
        size_bytes -= (size_t)count;
    }
}

static void send_command(struct connection *connection, const void *bytes, size_t size_bytes) {
    uint8_t packed[2048];
    if (packed_size_max(size_bytes) > sizeof packed) fail("a command of %zu bytes", size_bytes);
    if (connection->packing) send_all(connection, packed, pack_stored(connection->packing, packed, bytes, size_bytes));
    else send_all(connection, bytes, size_bytes);
}

/* Wait for one frame that is no heartbeat; only before the loop starts. `behind`: there may be more behind it. */
static struct frame await_frame(struct connection *connection, size_t *behind) {
    struct frame frame;
    for (;;) {
        size_t position = 0;
        while (next_frame(connection, &position, &frame)) {
            if (is_response(&frame, "_heartbeat_")) {
                send_command(connection, "NOP\n", 4);
                continue;
            }
            if (frame.type != FRAME_RESPONSE) unexpected_frame(&frame);
            /* The data stays where it is until the next read. */
            if (behind) *behind = connection->input_used - position;
            else if (connection->input_used != position) fail("more than one answer to one command");
            connection->input_used = 0;
            return frame;
        }
        drop_input(connection, position);
        if (!connection_receive(connection)) fail("no answer within %d s", ANSWER_TIMEOUT_S);
    }
}

static void await_ok(struct connection *connection) {
    struct frame frame = await_frame(connection, NULL);
    if (!is_response(&frame, "OK")) unexpected_frame(&frame);
}

void connect_socket(struct connection *connection, const char *host, uint16_t port) {
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) fail("socket: %s", strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("not an IPv4 address: %s", host);
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address)) fail("connect to %s:%u: %s", host, port, strerror(errno));
    int one = 1;
    struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

/* Everything behind the answer to IDENTIFY is compressed, an OK first. */
static void start_compression(struct connection *connection, const struct options *options, const uint8_t *behind, size_t behind_size_bytes) {
    uint8_t greeting[16];
    connection->packing = packing_start(options->compression, behind, behind_size_bytes);
    await_ok(connection);
    send_all(connection, greeting, pack_greeting(connection->packing, greeting));
}

static void log_in(struct connection *connection, const char *secret) {
    char command[1024] = "AUTH\n";
    size_t size = strlen(secret);
    if (size > sizeof command - 16) fail("a secret of %zu bytes", size);
    put_u32((uint8_t *)command + 5, (uint32_t)size);
    memcpy(command + 9, secret, size);
    send_command(connection, command, 9 + size);
    struct frame frame = await_frame(connection, NULL);
    if (frame.size_bytes < 2 || frame.data[0] != '{') unexpected_frame(&frame);
}

void connection_open(struct connection *connection, const struct options *options) {
    connection->input_room = INPUT_ROOM_BYTES;
    if (connection->role == ROLE_IDLE && options->compression == PLAIN) connection->input_room = INPUT_ROOM_IDLE_BYTES;
    else if (options->topics * options->channels > CONNECTIONS_MANY) connection->input_room = INPUT_ROOM_SMALL_BYTES;
    connection->input = allocate(connection->input_room);
    /* At most RDY messages are in flight, each settled by 21 bytes; a few NOPs and one CLS beside them. */
    connection->output_room = (size_t)options->rdy * 24 + options->size_bytes + 4096;
    connection->output = allocate(connection->output_room);
    connect_socket(connection, options->host, options->port);
    char body[512], head[32];
    /* Output buffering as every client library asks for it. */
    int size = snprintf(body, sizeof body,
        "{\"client_id\":\"loadgen\",\"hostname\":\"loadgen\",\"user_agent\":\"loadgen/1\",\"feature_negotiation\":true,"
        "\"heartbeat_interval\":30000,\"output_buffer_size\":16384,\"output_buffer_timeout\":250,\"msg_timeout\":%u,"
        "\"snappy\":%s,\"deflate\":%s}",
        options->message_timeout_ms, options->compression == SNAPPY ? "true" : "false", options->compression == DEFLATE ? "true" : "false");
    int head_size = snprintf(head, sizeof head, "  V2IDENTIFY\n");
    put_u32((uint8_t *)head + head_size, (uint32_t)size);
    send_all(connection, head, (size_t)head_size + 4);
    send_all(connection, body, (size_t)size);
    size_t behind = 0;
    struct frame frame = await_frame(connection, options->compression == PLAIN ? NULL : &behind);
    if (frame.size_bytes < 2 || frame.data[0] != '{') unexpected_frame(&frame);
    if (options->compression != PLAIN) start_compression(connection, options, frame.data + frame.size_bytes, behind);
    if (options->auth) log_in(connection, options->auth);
}

void connection_subscribe(struct connection *connection, const char *topic, const char *channel) {
    char line[256];
    int size = snprintf(line, sizeof line, "SUB %s %s\n", topic, channel);
    send_command(connection, line, (size_t)size);
    await_ok(connection);
}

void connection_start(struct connection *connection) {
    if (fcntl(connection->fd, F_SETFL, O_NONBLOCK)) fail("fcntl: %s", strerror(errno));
}

/* Read once. 0 when nothing is there now. */
static size_t receive_bytes(struct connection *connection, uint8_t *target, size_t room_bytes) {
    ssize_t count = recv(connection->fd, target, room_bytes, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (count < 0) fail("recv: %s", strerror(errno));
    if (count == 0) fail("the server closed the connection");
    return (size_t)count;
}

/* Have more input. False when nothing is there now (or, while still waiting, when the time is up). */
bool connection_receive(struct connection *connection) {
    size_t room = connection->input_room - connection->input_used, packed_room;
    uint8_t *target = connection->input + connection->input_used;
    if (!room) fail("a frame is larger than %zu bytes", connection->input_room);
    for (;;) {
        size_t count = connection->packing ? unpack(connection->packing, target, room) : receive_bytes(connection, target, room);
        connection->input_used += count;
        if (count || !connection->packing) return count > 0;
        uint8_t *packed = unpack_room(connection->packing, &packed_room);
        if (!packed_room) fail("a frame is larger than %zu bytes", connection->input_room);
        count = receive_bytes(connection, packed, packed_room);
        if (!count) return false;
        unpack_received(connection->packing, count);
    }
}

bool next_frame(struct connection *connection, size_t *position, struct frame *frame) {
    size_t left = connection->input_used - *position;
    if (left < 8) return false;
    const uint8_t *at = connection->input + *position;
    uint32_t size = get_u32(at);
    if (size < 4 || size > connection->input_room - 4) fail("frame size %u", size);
    if (left < 4 + (size_t)size) return false;
    frame->type = get_u32(at + 4);
    frame->data = at + 8;
    frame->size_bytes = size - 4;
    if (frame->type > FRAME_MESSAGE) fail("frame type %u", frame->type);
    if (frame->type == FRAME_MESSAGE && frame->size_bytes < MESSAGE_HEAD_BYTES) fail("message frame of %u bytes", size);
    *position += 4 + (size_t)size;
    return true;
}

void drop_input(struct connection *connection, size_t position) {
    if (!position) return;
    memmove(connection->input, connection->input + position, connection->input_used - position);
    connection->input_used -= position;
}

uint8_t *reserve_output(struct connection *connection, size_t size_bytes) {
    if (connection->output_room - connection->output_used < size_bytes) fail("the server delivers more than RDY allows");
    uint8_t *at = connection->output + connection->output_used;
    connection->output_used += size_bytes;
    return at;
}

/* Send once. 0 when the socket takes nothing now. */
static size_t send_bytes(struct connection *connection, const uint8_t *bytes, size_t size_bytes) {
    ssize_t count = send(connection->fd, bytes, size_bytes, MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (count < 0) fail("send: %s", strerror(errno));
    return (size_t)count;
}

static void flush_packed(struct connection *connection) {
    struct packing *packing = connection->packing;
    size_t waiting, count;
    if (connection->output_used) {
        uint8_t *target = packed_output(packing, packed_size_max(connection->output_used));
        packed_add(packing, pack_stored(packing, target, connection->output, connection->output_used));
        connection->output_used = 0;
    }
    for (;;) {
        const uint8_t *bytes = packed_waiting(packing, &waiting);
        if (!waiting || !(count = send_bytes(connection, bytes, waiting))) return;
        packed_sent(packing, count);
    }
}

bool output_waits(const struct connection *connection) {
    size_t waiting = 0;
    if (connection->packing) packed_waiting(connection->packing, &waiting);
    return connection->output_used + waiting > 0;
}

/* Send what is staged; what the socket does not take stays for the next time it can. */
void flush_output(struct connection *connection) {
    if (connection->packing) {
        flush_packed(connection);
        return;
    }
    while (connection->output_sent < connection->output_used) {
        size_t count = send_bytes(connection, connection->output + connection->output_sent, connection->output_used - connection->output_sent);
        if (!count) {
            memmove(connection->output, connection->output + connection->output_sent, connection->output_used - connection->output_sent);
            connection->output_used -= connection->output_sent;
            connection->output_sent = 0;
            return;
        }
        connection->output_sent += count;
    }
    connection->output_sent = connection->output_used = 0;
}
