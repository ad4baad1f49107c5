/* What is asked while no clock runs: where the topic is, how far its queues go, and at the end whether they hold what was answered. */
#include "rocketmq.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    INPUT_ROOM_BYTES = 1 << 20,
    OUTPUT_ROOM_MIN_BYTES = 1 << 16,
    ROUTE_BYTES_MAX = 1 << 16,
    /* A broker writes the index that queues are read by behind the log, and tells a nameserver of new topics when it comes to it: what is
     * not there yet is asked for again until the deadline. */
    PAUSE_MS = 20,
};

#define FIELD(name, value) {rocketmq_word(name), rocketmq_word(value)}
#define COUNT(fields) ((uint32_t)(sizeof(fields) / sizeof *(fields)))

/* False when it is too late to ask again. */
static bool patience(const struct rocketmq_run *rocketmq) {
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    if (now_ns() > rocketmq->run.deadline_ns) return false;
    nanosleep(&pause, NULL);
    return true;
}

void rocketmq_open(struct rocketmq_connection *connection, const struct options *options, uint32_t slot_count, const char *host, uint16_t port) {
    struct connection *base = &connection->base;
    uint64_t body_bytes = options->mode == MODE_ROCKETMQ_BATCH ? (uint64_t)options->batch * (options->size_bytes + 200u) : options->size_bytes;
    base->input_room = INPUT_ROOM_BYTES;
    base->input = allocate(base->input_room);
    base->output_room = OUTPUT_ROOM_MIN_BYTES + slot_count * (HEAD_BYTES_MAX + body_bytes);
    base->output = allocate(base->output_room);
    connection->slot_count = connection->free_count = slot_count;
    connection->slots = calloc(slot_count, sizeof *connection->slots);
    connection->free_slots = calloc(slot_count, sizeof *connection->free_slots);
    if (!connection->slots || !connection->free_slots) fail("no memory for %u requests", slot_count);
    for (uint32_t i = 0; i < slot_count; i++) connection->free_slots[i] = slot_count - 1 - i;
    connect_socket(base, host, port);
}

/* Ask and wait for the answer; what it points to stays until the next call. */
static struct rocketmq_frame call(const struct rocketmq_run *rocketmq, struct rocketmq_connection *connection, int code, const struct rocketmq_field *fields, uint32_t count) {
    struct rocketmq_frame frame;
    size_t position = 0;
    uint8_t head[HEAD_BYTES_MAX * 2];
    int32_t opaque = (int32_t)++connection->slots[0].generation;
    connection->base.input_used = 0;
    send_all(&connection->base, head, (size_t)(rocketmq_head(head, rocketmq->run.options.binary, code, opaque, fields, count, 0) - head));
    while (!rocketmq_next(connection, &position, &frame))
        if (!connection_receive(&connection->base)) fail("no answer to a request of code %d", code);
    if (frame.opaque != opaque) fail("the answer to request %d instead of %d", frame.opaque, opaque);
    if (frame.binary && !rocketmq->run.options.binary) fail("a binary header answers one of JSON");
    if (connection->base.input_used != position) fail("more than one answer to one request");
    return frame;
}

/* Copy what stands between `before` and the next quote. */
static void copy_until_quote(char *target, size_t room, const char *body, const char *before, const char *what) {
    const char *at = strstr(body, before);
    const char *end = at ? strchr(at + strlen(before), '"') : NULL;
    if (!end || (size_t)(end - at) - strlen(before) >= room) fail("a route without %s: %.300s", what, body);
    at += strlen(before);
    memcpy(target, at, (size_t)(end - at));
    target[end - at] = 0;
}

/* The first broker of a route, and how many queues of it can be written to. */
static uint32_t read_route(struct rocketmq_run *rocketmq, const struct rocketmq_frame *frame) {
    char body[ROUTE_BYTES_MAX], address[80];
    if (frame->body.size >= sizeof body) fail("a route of %zu bytes", frame->body.size);
    memcpy(body, frame->body.at, frame->body.size);
    body[frame->body.size] = 0;
    copy_until_quote(rocketmq->broker_name, sizeof rocketmq->broker_name, body, "\"brokerName\":\"", "a broker");
    copy_until_quote(address, sizeof address, body, strstr(body, "{0:\"") ? "{0:\"" : "{\"0\":\"", "an address");
    char *colon = strrchr(address, ':');
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (!colon || port < 1 || port > 65535 || (size_t)(colon - address) >= sizeof rocketmq->broker_host) fail("not an address: %s", address);
    *colon = 0;
    snprintf(rocketmq->broker_host, sizeof rocketmq->broker_host, "%.63s", address);
    rocketmq->broker_port = (uint16_t)port;
    const char *queues = strstr(body, "\"writeQueueNums\":");
    return queues ? (uint32_t)strtoul(queues + strlen("\"writeQueueNums\":"), NULL, 10) : 0;
}

/* 0 when there is no such topic. */
static uint32_t ask_route(struct rocketmq_run *rocketmq, struct rocketmq_connection *nameserver, const char *topic) {
    const struct rocketmq_field fields[] = {FIELD("topic", topic), FIELD("acceptStandardJsonOnly", "true")};
    struct rocketmq_frame frame = call(rocketmq, nameserver, ROCKETMQ_ROUTE, fields, COUNT(fields));
    if (frame.code == ROCKETMQ_NO_TOPIC) return 0;
    if (frame.code != ROCKETMQ_SUCCESS) rocketmq_refused("the question for a route", &frame);
    return read_route(rocketmq, &frame);
}

static void create_topic(struct rocketmq_run *rocketmq) {
    const struct options *options = &rocketmq->run.options;
    char queues[12];
    snprintf(queues, sizeof queues, "%u", options->queues);
    const struct rocketmq_field fields[] = {
        FIELD("topic", options->topic), FIELD("defaultTopic", "TBW102"), FIELD("readQueueNums", queues), FIELD("writeQueueNums", queues), FIELD("perm", "6"),
        FIELD("topicFilterType", "SINGLE_TAG"), FIELD("topicSysFlag", "0"), FIELD("order", "false"),
    };
    struct rocketmq_frame frame = call(rocketmq, &rocketmq->control, ROCKETMQ_CREATE_TOPIC, fields, COUNT(fields));
    if (frame.code != ROCKETMQ_SUCCESS) rocketmq_refused("the wish for a topic", &frame);
}

/* Ask the nameserver for the topic. Where that does not make one, a broker that takes new topics is asked to, and then the nameserver again. */
void rocketmq_find(struct rocketmq_run *rocketmq) {
    const struct options *options = &rocketmq->run.options;
    struct rocketmq_connection nameserver = {0};
    rocketmq_open(&nameserver, options, 1, options->host, options->port);
    uint32_t queues = ask_route(rocketmq, &nameserver, options->topic);
    bool creates = !queues;
    if (creates && !ask_route(rocketmq, &nameserver, "TBW102")) fail("the nameserver knows neither %s nor a broker that would make it", options->topic);
    rocketmq_open(&rocketmq->control, options, 1, rocketmq->broker_host, rocketmq->broker_port);
    if (creates) create_topic(rocketmq);
    while (!queues && patience(rocketmq)) queues = ask_route(rocketmq, &nameserver, options->topic);
    if (queues < options->queues) fail("%s has %u queues of %u", options->topic, queues, options->queues);
    if (queues > QUEUE_COUNT_MAX) fail("%s has %u queues", options->topic, queues);
    rocketmq->topic_queue_count = queues;
    rocketmq->queue_count = options->queues;
}

static uint64_t max_offset(struct rocketmq_run *rocketmq, uint32_t queue) {
    char number[12];
    snprintf(number, sizeof number, "%u", queue);
    const struct rocketmq_field fields[] = {FIELD("queueId", number), FIELD("bname", rocketmq->broker_name), FIELD("topic", rocketmq->run.options.topic)};
    struct rocketmq_frame frame = call(rocketmq, &rocketmq->control, ROCKETMQ_MAX_OFFSET, fields, COUNT(fields));
    if (frame.code != ROCKETMQ_SUCCESS) rocketmq_refused("the question for the highest offset", &frame);
    return rocketmq_number(rocketmq_ext(&frame, "offset"), "offset");
}

/* How far the queues go; asked until two answers agree, as what came just before may still be on its way into them. */
void rocketmq_offsets(struct rocketmq_run *rocketmq) {
    for (bool again = false;; again = true) {
        bool agree = again;
        rocketmq->stored = 0;
        for (uint32_t i = 0; i < rocketmq->topic_queue_count; i++) {
            uint64_t offset = max_offset(rocketmq, i);
            agree = agree && offset == rocketmq->queues[i].first;
            rocketmq->queues[i].first = rocketmq->queues[i].next = offset;
            rocketmq->stored += offset;
        }
        if (agree) return;
        if (!patience(rocketmq)) fail("somebody else publishes to %s", rocketmq->run.options.topic);
    }
}

/* After the last answer to a send: each queue must soon end where the answers say. */
void rocketmq_confirm(struct rocketmq_run *rocketmq) {
    for (uint32_t i = 0; i < rocketmq->queue_count; i++) {
        const struct rocketmq_queue *queue = &rocketmq->queues[i];
        uint64_t offset, wanted = queue->first + queue->quota;
        while ((offset = max_offset(rocketmq, i)) < wanted && patience(rocketmq)) continue;
        if (offset != wanted) fail("queue %u ends at %llu instead of %llu", i, (unsigned long long)offset, (unsigned long long)wanted);
    }
}
