/* Consumers: walk the frames of a read, settle all of their messages by one write.
 *
 * With one topic, what counts as consumed is what the slowest channel has; with many, the average of all channels.
 */
#include "loadgen.h"

#include <stdio.h>
#include <string.h>

enum { FIN_BYTES = 4 + MESSAGE_ID_BYTES + 1 };

/* Ask for messages; the answer to SUB is already here. */
void consumer_begin(struct run *run, struct connection *connection) {
    char line[32];
    int size = snprintf(line, sizeof line, "RDY %u\n", run->options.rdy);
    memcpy(reserve_output(connection, (size_t)size), line, (size_t)size);
    flush_output(connection);
}

static void settle(struct connection *connection, const uint8_t *data) {
    uint8_t *at = reserve_output(connection, FIN_BYTES);
    memcpy(at, "FIN ", 4);
    memcpy(at + 4, data + MESSAGE_ID_AT, MESSAGE_ID_BYTES);
    at[FIN_BYTES - 1] = '\n';
}

static void take_message(struct run *run, struct connection *connection, const struct frame *frame, uint64_t now) {
    struct channel_progress *channel = &run->channels[connection->channel];
    unsigned attempts = (unsigned)frame->data[ATTEMPTS_AT] << 8 | frame->data[ATTEMPTS_AT + 1];
    if (attempts > 1) channel->redelivered++;
    else {
        channel->received++;
        run->received_all++;
    }
    if (run->options.mode == MODE_LATENCY && run->sample_count < run->sample_room) {
        uint64_t stamp;
        if (frame->size_bytes < MESSAGE_HEAD_BYTES + sizeof stamp) fail("a message without a time: was the topic fresh?");
        memcpy(&stamp, frame->data + MESSAGE_HEAD_BYTES, sizeof stamp);
        run->samples_ns[run->sample_count++] = now - stamp;
    }
    if (run->options.hold_first && !channel->held) channel->held = true;
    else settle(connection, frame->data);
}

static uint64_t slowest_channel(const struct run *run) {
    uint64_t slowest = UINT64_MAX;
    for (uint32_t i = 0; i < run->channel_count; i++)
        if (run->channels[i].received < slowest) slowest = run->channels[i].received;
    return slowest;
}

/* A channel that has received everything says CLS on all its connections: the answer to it also shows that the
 * settles before it have been handled, because commands of one connection are handled in order. */
static void close_channel(struct run *run, uint32_t channel) {
    struct connection *connections = run->connections + (size_t)channel * run->consumers_per_channel;
    for (uint32_t i = 0; i < run->consumers_per_channel; i++) {
        struct connection *connection = &connections[i];
        if (connection->closing) continue;
        memcpy(reserve_output(connection, 4), "CLS\n", 4);
        connection->closing = true;
        flush_output(connection);
        watch_output(run, connection, output_waits(connection));
    }
}

static void after_messages(struct run *run, struct connection *connection) {
    run->received = run->options.topics == 1 ? slowest_channel(run) : run->received_all / run->options.channels;
    mark_progress(run, run->received, run->options.messages);
    if (run->channels[connection->channel].received >= run->received_quota) close_channel(run, connection->channel);
}

void consumer_receive(struct run *run, struct connection *connection) {
    struct frame frame;
    while (connection_receive(connection)) {
        uint64_t now = now_ns();
        size_t position = 0;
        bool messages = false;
        while (next_frame(connection, &position, &frame)) {
            if (frame.type == FRAME_MESSAGE) {
                take_message(run, connection, &frame, now);
                messages = true;
            } else if (is_response(&frame, "_heartbeat_")) {
                memcpy(reserve_output(connection, 4), "NOP\n", 4);
            } else if (connection->closing && is_response(&frame, "CLOSE_WAIT")) {
                finish_connection(run, connection);
                return;
            } else {
                unexpected_frame(&frame);
            }
        }
        drop_input(connection, position);
        flush_output(connection);
        watch_output(run, connection, output_waits(connection));
        if (messages) after_messages(run, connection);
    }
}

/* Connections that subscribe and ask for nothing, or only sit there. */
void idle_receive(struct run *run, struct connection *connection) {
    struct frame frame;
    while (connection_receive(connection)) {
        size_t position = 0;
        while (next_frame(connection, &position, &frame)) {
            if (!is_response(&frame, "_heartbeat_")) unexpected_frame(&frame);
            memcpy(reserve_output(connection, 4), "NOP\n", 4);
        }
        drop_input(connection, position);
        flush_output(connection);
        watch_output(run, connection, output_waits(connection));
    }
}
