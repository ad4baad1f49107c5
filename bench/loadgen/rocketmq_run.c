/* The modes of the RocketMQ part: the connections, the slots of what is under way, the loop, the end of the warm-up. */
#include "rocketmq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static bool sends(const struct rocketmq_run *rocketmq) {
    return rocketmq->run.options.mode == MODE_ROCKETMQ_SEND || rocketmq->run.options.mode == MODE_ROCKETMQ_BATCH;
}

/* A free slot, with an opaque that leads back to it and was not used by the request before. */
struct rocketmq_slot *rocketmq_take_slot(struct rocketmq_connection *connection) {
    uint32_t index = connection->free_slots[--connection->free_count];
    struct rocketmq_slot *slot = &connection->slots[index];
    slot->generation = (slot->generation + 1) % (OPAQUE_COUNT / connection->slot_count);
    slot->opaque = (int32_t)(OPAQUE_FIRST + slot->generation * connection->slot_count + index);
    slot->sent_ns = now_ns();
    return slot;
}

/* Room for a request, whose head is at most HEAD_BYTES_MAX long. */
uint8_t *rocketmq_stage(struct rocketmq_connection *connection, size_t body_bytes) {
    struct connection *base = &connection->base;
    if (base->output_room - base->output_used < HEAD_BYTES_MAX + body_bytes) fail("no room for a request of %zu bytes", body_bytes);
    return base->output + base->output_used;
}

void rocketmq_staged(struct rocketmq_connection *connection, const uint8_t *end) {
    connection->base.output_used = (size_t)(end - connection->base.output);
}

/* Send as much as may be under way, in one piece. */
static void push(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection) {
    while (connection->free_count) {
        bool more = sends(rocketmq) ? rocketmq_send_next(rocketmq, connection) : rocketmq_pull_next(rocketmq, connection);
        if (!more) break;
    }
    flush_output(&connection->base);
    watch_output(&rocketmq->run, &connection->base, output_waits(&connection->base));
}

/* The clock starts when what goes before is answered. */
static void begin_timing(struct rocketmq_run *rocketmq, uint64_t now) {
    struct run *run = &rocketmq->run;
    rocketmq->timed = true;
    rocketmq->warmed = rocketmq->done;
    rocketmq->answered_before = rocketmq->answered;
    rocketmq->pulled_before = rocketmq->pulled;
    rocketmq->pulled_bytes = 0;
    run->started_ns = run->slice_ns[0] = now;
    run->cpu_before_s = cpu_seconds();
}

static void take_answer(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection, const struct rocketmq_frame *frame) {
    struct run *run = &rocketmq->run;
    uint64_t now = now_ns();
    uint32_t index = (uint32_t)(frame->opaque - OPAQUE_FIRST) % connection->slot_count;
    struct rocketmq_slot *slot = &connection->slots[index];
    if (frame->opaque < OPAQUE_FIRST || slot->opaque != frame->opaque) fail("an answer to %d, which nobody asked", frame->opaque);
    if (frame->binary && !run->options.binary) fail("a binary header answers one of JSON");
    uint32_t count = sends(rocketmq) ? rocketmq_send_answer(rocketmq, slot, frame) : rocketmq_pull_answer(rocketmq, slot, frame);
    slot->opaque = 0;
    connection->free_slots[connection->free_count++] = index;
    rocketmq->answered++;
    rocketmq->done += count;
    if (!rocketmq->timed) {
        if (rocketmq->done >= run->options.warm_up) begin_timing(rocketmq, now);
        return;
    }
    if (run->sample_count < run->sample_room) run->samples_ns[run->sample_count++] = now - slot->sent_ns;
    mark_progress(run, rocketmq->done - rocketmq->warmed, run->options.messages);
}

static void handle(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection, uint32_t events) {
    struct rocketmq_frame frame;
    size_t position = 0;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && connection_receive(&connection->base)) {
        while (rocketmq_next(connection, &position, &frame)) take_answer(rocketmq, connection, &frame);
        drop_input(&connection->base, position);
    }
    push(rocketmq, connection);
}

/* Pulls have a slot for each queue, shared out among the connections. */
static uint32_t slot_count(const struct options *options) {
    return options->mode == MODE_ROCKETMQ_PULL ? (options->queues + options->connections - 1) / options->connections : options->window;
}

static void open_connections(struct rocketmq_run *rocketmq) {
    struct run *run = &rocketmq->run;
    const struct options *options = &run->options;
    rocketmq->connections = calloc(options->connections, sizeof *rocketmq->connections);
    if (!rocketmq->connections) fail("no memory for %u connections", options->connections);
    for (uint32_t i = 0; i < options->connections; i++) {
        struct rocketmq_connection *connection = &rocketmq->connections[i];
        rocketmq_open(connection, options, slot_count(options), rocketmq->broker_host, rocketmq->broker_port);
        connection_start(&connection->base);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, connection->base.fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    }
}

/* After each answer what may be asked is asked: when nothing is under way, all is done. Of what others publish enough is enough. */
static bool is_over(const struct rocketmq_run *rocketmq) {
    if (rocketmq->run.options.follow && rocketmq->begun < rocketmq->quota) return false;
    return rocketmq->run.options.foreign ? rocketmq->done >= rocketmq->quota : rocketmq->answered == rocketmq->begun;
}

static void loop(struct rocketmq_run *rocketmq) {
    struct run *run = &rocketmq->run;
    struct epoll_event events[EVENT_COUNT];
    if (!run->options.warm_up) begin_timing(rocketmq, now_ns());
    for (uint32_t i = 0; i < run->options.connections; i++) push(rocketmq, &rocketmq->connections[i]);
    say_ready(&run->options);
    while (!is_over(rocketmq)) {
        int count = epoll_wait(run->epoll_fd, events, EVENT_COUNT, run->options.follow ? FOLLOW_CHECK_MS : DEADLINE_CHECK_MS);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) handle(rocketmq, events[i].data.ptr, events[i].events);
        /* Who waited for those who consume is not woken by its own socket. */
        for (uint32_t i = 0; run->options.follow && i < run->options.connections; i++) push(rocketmq, &rocketmq->connections[i]);
        if (now_ns() > run->deadline_ns) break;
    }
    run->ended_ns = now_ns();
    if (!rocketmq->timed) begin_timing(rocketmq, run->ended_ns - 1);
}

void rocketmq_execute(struct rocketmq_run *rocketmq) {
    run_prepare(&rocketmq->run);
    rocketmq_find(rocketmq);
    if (!rocketmq->run.options.foreign) rocketmq_offsets(rocketmq);
    if (sends(rocketmq)) rocketmq_send_prepare(rocketmq);
    else rocketmq_pull_prepare(rocketmq);
    open_connections(rocketmq);
    loop(rocketmq);
    bool complete = is_over(rocketmq);
    for (uint32_t i = 0; complete && !rocketmq->run.options.foreign && i < rocketmq->run.options.connections; i++)
        if (rocketmq->connections[i].base.input_used || connection_receive(&rocketmq->connections[i].base)) fail("more answers than requests");
    if (complete && sends(rocketmq)) rocketmq_confirm(rocketmq);
    rocketmq_report(rocketmq, complete);
    run_end(complete);
}
