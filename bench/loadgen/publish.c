/* Publishers: prepared commands, sent round and round, a bounded number of them unanswered. */
#include "loadgen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* A period is at least this long, so that one send() can carry many small commands. */
    PERIOD_BYTES_MIN = 1 << 18,
    COMMAND_LINE_BYTES_MAX = 160,
};

static void topic_name(char *name, size_t room, const struct options *options, uint32_t index) {
    if (options->topics == 1) snprintf(name, room, "%s", options->topic);
    else snprintf(name, room, "%s-%05u", options->topic, index);
}

/* Letters that differ from message to message, so that neither side can profit from equal bodies. */
void fill_body(uint8_t *at, uint32_t size_bytes, uint64_t *state) {
    for (uint32_t i = 0; i < size_bytes; i++) {
        *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
        at[i] = (uint8_t)('a' + (*state >> 33) % 26);
    }
}

enum { WORD_COUNT = 512, WORD_BYTES_MAX = 10 };

/* Words of three to nine letters: text that compresses about as well as lines of a log do. */
static void fill_words(uint8_t *at, uint32_t size_bytes, uint64_t *state) {
    static char words[WORD_COUNT][WORD_BYTES_MAX];
    static uint8_t lengths[WORD_COUNT];
    if (!lengths[0]) {
        uint64_t seed = 362436069ULL;
        for (uint32_t i = 0; i < WORD_COUNT; i++) {
            lengths[i] = (uint8_t)(4 + i % 7);
            fill_body((uint8_t *)words[i], lengths[i] - 1u, &seed);
            words[i][lengths[i] - 1] = ' ';
        }
    }
    for (uint32_t done = 0; done < size_bytes;) {
        *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
        uint32_t word = (uint32_t)(*state >> 33) % WORD_COUNT, size = lengths[word];
        if (size > size_bytes - done) size = size_bytes - done;
        memcpy(at + done, words[word], size);
        done += size;
    }
}

static uint8_t *build_command(uint8_t *at, const struct options *options, uint32_t topic_index, uint64_t *state) {
    char topic[96];
    topic_name(topic, sizeof topic, options, topic_index);
    bool batches = options->mode != MODE_PUB && (options->mode != MODE_BOTH || options->batch > 1);
    if (batches) {
        at += sprintf((char *)at, "MPUB %s\n", topic);
        put_u32(at, 4 + options->batch * (4 + options->size_bytes));
        put_u32(at + 4, options->batch);
        at += 8;
    } else if (options->defer_ms) {
        at += sprintf((char *)at, "DPUB %s %u\n", topic, options->defer_ms);
    } else {
        at += sprintf((char *)at, "PUB %s\n", topic);
    }
    for (uint32_t i = 0; i < (batches ? options->batch : 1); i++) {
        put_u32(at, options->size_bytes);
        if (options->words) fill_words(at + 4, options->size_bytes, state);
        else fill_body(at + 4, options->size_bytes, state);
        at += 4 + options->size_bytes;
    }
    return at;
}

void period_build(struct period *period, const struct options *options) {
    period->messages_per_command = options->mode == MODE_PUB ? 1 : options->batch;
    size_t command_bytes_max = COMMAND_LINE_BYTES_MAX + (size_t)period->messages_per_command * (4 + options->size_bytes);
    uint32_t repeats = 1;
    while (repeats * options->topics * command_bytes_max < PERIOD_BYTES_MIN) repeats++;
    period->count = repeats * options->topics;
    size_t room_bytes = options->compression == PLAIN ? command_bytes_max : packed_size_max(command_bytes_max);
    if (period->count * room_bytes > (size_t)1 << 31) fail("topics x batch x size is over 2 GiB");
    period->bytes = allocate(period->count * room_bytes);
    uint8_t *plain = allocate(command_bytes_max);
    period->starts = allocate((period->count + 1) * sizeof *period->starts);
    uint8_t *at = period->bytes;
    uint64_t state = 88172645463325252ULL;
    for (uint32_t i = 0; i < period->count; i++) {
        period->starts[i] = (size_t)(at - period->bytes);
        if (options->compression == PLAIN) {
            at = build_command(at, options, i % options->topics, &state);
        } else {
            uint8_t *end = build_command(plain, options, i % options->topics, &state);
            at += pack(options->compression, at, plain, (size_t)(end - plain));
        }
    }
    free(plain);
    period->size_bytes = period->starts[period->count] = (size_t)(at - period->bytes);
}

static uint64_t bytes_through(const struct period *period, uint64_t commands) {
    return commands / period->count * period->size_bytes + period->starts[commands % period->count];
}

/* Divide the commands over the publishing connections, the remainder to the first. */
void publisher_share(struct run *run) {
    uint64_t commands = run->published_quota / run->period.messages_per_command, publishers = run->options.connections, given = 0;
    for (uint32_t i = 0; i < run->connection_count; i++) {
        struct connection *connection = &run->connections[i];
        if (connection->role != ROLE_PUBLISHER) continue;
        connection->commands_quota = commands / publishers + (given < commands % publishers);
        connection->allowed_at_ns = allocate(run->options.window * sizeof *connection->allowed_at_ns);
        if (!connection->commands_quota) finish_connection(run, connection);
        given++;
    }
}

/* Fill the window again when half of it has been answered: one send() per half window instead of one per answer. */
static void allow(struct run *run, struct connection *connection) {
    if (connection->commands_allowed - connection->commands_answered > run->options.window / 2) return;
    uint64_t limit = connection->commands_answered + run->options.window;
    if (run->options.follow) run->received = lead_heard();
    if (limit > connection->commands_quota) limit = connection->commands_quota;
    if (run->options.lead_max && run->published > run->received + run->options.lead_max) limit = connection->commands_allowed;
    if (limit <= connection->commands_allowed) return;
    uint64_t now = now_ns();
    while (connection->commands_allowed < limit) connection->allowed_at_ns[connection->commands_allowed++ % run->options.window] = now;
    connection->bytes_allowed = bytes_through(&run->period, connection->commands_allowed);
}

void publisher_push(struct run *run, struct connection *connection) {
    if (connection->done) return;
    flush_output(connection);
    if (output_waits(connection)) {
        watch_output(run, connection, true);
        return;
    }
    allow(run, connection);
    while (connection->bytes_sent < connection->bytes_allowed) {
        size_t at = connection->bytes_sent % run->period.size_bytes, size = run->period.size_bytes - at;
        if (size > connection->bytes_allowed - connection->bytes_sent) size = connection->bytes_allowed - connection->bytes_sent;
        ssize_t count = send(connection->fd, run->period.bytes + at, size, MSG_NOSIGNAL);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            watch_output(run, connection, true);
            return;
        }
        if (count < 0) fail("send: %s", strerror(errno));
        connection->bytes_sent += (uint64_t)count;
    }
    watch_output(run, connection, false);
}

static void take_answer(struct run *run, struct connection *connection, uint64_t now) {
    if (connection->commands_answered == connection->commands_allowed) fail("more answers than commands");
    uint64_t allowed_at = connection->allowed_at_ns[connection->commands_answered % run->options.window];
    if (run->sample_count < run->sample_room) run->samples_ns[run->sample_count++] = now - allowed_at;
    connection->commands_answered++;
    run->published += run->period.messages_per_command;
    if (run->options.mode != MODE_BOTH) mark_progress(run, run->published, run->published_quota);
}

void publisher_receive(struct run *run, struct connection *connection) {
    struct frame frame;
    while (connection_receive(connection)) {
        uint64_t now = now_ns();
        size_t position = 0;
        while (next_frame(connection, &position, &frame)) {
            if (is_response(&frame, "OK")) {
                take_answer(run, connection, now);
            } else if (is_response(&frame, "_heartbeat_")) {
                /* In the middle of a command a NOP cannot go out, and the command itself says that we live. */
                if (connection->bytes_sent == connection->bytes_allowed) memcpy(reserve_output(connection, 4), "NOP\n", 4);
            } else {
                unexpected_frame(&frame);
            }
        }
        drop_input(connection, position);
        if (connection->commands_answered == connection->commands_quota) {
            finish_connection(run, connection);
            return;
        }
        publisher_push(run, connection);
    }
}
