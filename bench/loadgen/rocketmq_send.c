/* Sending: one message per request (310), or a batch (320). The queues take turns. */
#include "rocketmq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BODY_COUNT = 64,
    IDENTITY_BYTES = 32, /* 16 bytes in hexadecimal: where the message is */
    PROPERTIES_BYTES_MAX = 100,
    BATCH_RECORD_BYTES = 22, /* of a message of a batch, without its body and properties */
    DECIMAL_BYTES_MAX = 24,
};

/* The word behind the number: a body that is not ours, or not this one, does not have it. */
uint32_t rocketmq_body_word(uint64_t number) { return (uint32_t)((number + 1) * 0x9E3779B97F4A7C15ULL >> 32); }

/* How many messages go to each queue: requests go round them, the warm-up's as well. */
void rocketmq_send_prepare(struct rocketmq_run *rocketmq) {
    const struct options *options = &rocketmq->run.options;
    uint64_t each = options->mode == MODE_ROCKETMQ_BATCH ? options->batch : 1, state = 88172645463325252ULL;
    rocketmq->quota = (options->messages + options->warm_up) / each;
    for (uint32_t i = 0; i < rocketmq->queue_count; i++) {
        struct rocketmq_queue *queue = &rocketmq->queues[i];
        queue->quota = (rocketmq->quota / rocketmq->queue_count + (i < rocketmq->quota % rocketmq->queue_count)) * each;
        queue->seen = calloc(queue->quota / 8 + 1, 1);
        if (!queue->seen) fail("no memory for the offsets of queue %u", i);
    }
    rocketmq->bodies = allocate((size_t)BODY_COUNT * options->size_bytes);
    fill_body(rocketmq->bodies, BODY_COUNT * options->size_bytes, &state);
}

static uint8_t *put_body(const struct rocketmq_run *rocketmq, uint8_t *at, uint64_t number) {
    size_t size = rocketmq->run.options.size_bytes;
    uint32_t word = rocketmq_body_word(number);
    memcpy(at, rocketmq->bodies + number % BODY_COUNT * size, size);
    memcpy(at + BODY_NUMBER_AT, &number, sizeof number);
    memcpy(at + BODY_WORD_AT, &word, sizeof word);
    return at + size;
}

/* As a Java client makes them: a key of its own for each message, here with the message's number in it. */
static size_t put_properties(uint8_t *at, uint64_t number) {
    static const char DIGITS[] = "0123456789ABCDEF", FIRST[] = "UNIQ_KEY\001C00002014A5F5FFD", LAST[] = "\002WAIT\001true";
    uint8_t *begin = at;
    memcpy(at, FIRST, sizeof FIRST - 1);
    at += sizeof FIRST - 1;
    for (int shift = 60; shift >= 0; shift -= 4) *at++ = (uint8_t)DIGITS[number >> shift & 15];
    memcpy(at, LAST, sizeof LAST - 1);
    return (size_t)(at + sizeof LAST - 1 - begin);
}

static struct rocketmq_text decimal(char *target, uint64_t value) {
    char *at = target + DECIMAL_BYTES_MAX;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    return (struct rocketmq_text){(const uint8_t *)at, (size_t)(target + DECIMAL_BYTES_MAX - at)};
}

/* The milliseconds since 1970 at which the message is said to be born. */
static uint64_t born_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static uint8_t *put_head(struct rocketmq_run *rocketmq, uint8_t *at, const struct rocketmq_slot *slot, uint64_t number, size_t body_bytes) {
    const struct options *options = &rocketmq->run.options;
    bool batch = options->mode == MODE_ROCKETMQ_BATCH;
    uint8_t properties[PROPERTIES_BYTES_MAX];
    char queue[DECIMAL_BYTES_MAX], born[DECIMAL_BYTES_MAX];
    struct rocketmq_text told = {properties, 0};
    if (batch) told = rocketmq_word("WAIT\001true");
    else told.size = put_properties(properties, number);
    const struct rocketmq_field fields[] = {
        {{(const uint8_t *)"a", 1}, rocketmq_word(options->group)}, {{(const uint8_t *)"b", 1}, rocketmq_word(options->topic)},
        {{(const uint8_t *)"c", 1}, rocketmq_word("TBW102")}, {{(const uint8_t *)"d", 1}, rocketmq_word("4")},
        {{(const uint8_t *)"e", 1}, decimal(queue, slot->queue)}, {{(const uint8_t *)"f", 1}, rocketmq_word("0")},
        {{(const uint8_t *)"g", 1}, decimal(born, born_ms())}, {{(const uint8_t *)"h", 1}, rocketmq_word("0")},
        {{(const uint8_t *)"i", 1}, told}, {{(const uint8_t *)"j", 1}, rocketmq_word("0")},
        {{(const uint8_t *)"k", 1}, rocketmq_word("false")}, {{(const uint8_t *)"m", 1}, rocketmq_word(batch ? "true" : "false")},
        {{(const uint8_t *)"n", 1}, rocketmq_word(rocketmq->broker_name)},
    };
    return rocketmq_head(at, options->binary, batch ? ROCKETMQ_SEND_BATCH : ROCKETMQ_SEND, slot->opaque, fields, sizeof fields / sizeof *fields, body_bytes);
}

/* The messages of a batch, one behind the other. */
static uint8_t *put_batch(const struct rocketmq_run *rocketmq, uint8_t *at, uint64_t number) {
    const struct options *options = &rocketmq->run.options;
    for (uint32_t i = 0; i < options->batch; i++, number++) {
        uint8_t *record = at;
        memset(at, 0, 16); /* magic, checksum and flag are nothing here */
        put_u32(at + 16, options->size_bytes);
        at = put_body(rocketmq, at + 20, number);
        size_t size = put_properties(at + 2, number);
        at[0] = 0;
        at[1] = (uint8_t)size;
        at += 2 + size;
        put_u32(record, (uint32_t)(at - record));
    }
    return at;
}

bool rocketmq_send_next(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection) {
    const struct options *options = &rocketmq->run.options;
    uint8_t properties[PROPERTIES_BYTES_MAX];
    if (rocketmq->begun == rocketmq->quota) return false;
    bool batch = options->mode == MODE_ROCKETMQ_BATCH;
    uint64_t begun = rocketmq->begun * (batch ? options->batch : 1), number = rocketmq->stored + begun;
    if (options->follow && begun > lead_heard() + options->lead_max) return false;
    size_t body_bytes = batch ? options->batch * (BATCH_RECORD_BYTES + options->size_bytes + put_properties(properties, number)) : options->size_bytes;
    struct rocketmq_slot *slot = rocketmq_take_slot(connection);
    slot->queue = (uint32_t)(rocketmq->begun++ % rocketmq->queue_count);
    slot->offset = rocketmq->queues[slot->queue].next;
    uint8_t *body = put_head(rocketmq, rocketmq_stage(connection, body_bytes), slot, number, body_bytes);
    uint8_t *end = batch ? put_batch(rocketmq, body, number) : put_body(rocketmq, body, number);
    if ((size_t)(end - body) != body_bytes) fail("a body of %zu bytes instead of %zu", (size_t)(end - body), body_bytes);
    rocketmq_staged(connection, end);
    return true;
}

/* Each message of the request has an identity of its own. */
static void check_identities(struct rocketmq_text identities, uint32_t count) {
    bool right = identities.size == (size_t)count * (IDENTITY_BYTES + 1) - 1;
    for (size_t i = 0; right && i < identities.size; i++) {
        uint8_t c = identities.at[i];
        bool digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
        right = i % (IDENTITY_BYTES + 1) == IDENTITY_BYTES ? c == ',' : digit;
    }
    if (right && count > 1) right = memcmp(identities.at, identities.at + IDENTITY_BYTES + 1, IDENTITY_BYTES) != 0;
    if (!right) fail("not the identities of %u messages: %.*s", count, (int)(identities.size < 200 ? identities.size : 200), (const char *)identities.at);
}

uint32_t rocketmq_send_answer(struct rocketmq_run *rocketmq, const struct rocketmq_slot *slot, const struct rocketmq_frame *frame) {
    struct rocketmq_queue *queue = &rocketmq->queues[slot->queue];
    uint32_t count = rocketmq->run.options.mode == MODE_ROCKETMQ_BATCH ? rocketmq->run.options.batch : 1;
    if (frame->code != ROCKETMQ_SUCCESS) rocketmq_refused("a send", frame);
    uint64_t queue_id = rocketmq_number(rocketmq_ext(frame, "queueId"), "queueId"), offset = rocketmq_number(rocketmq_ext(frame, "queueOffset"), "queueOffset");
    if (queue_id != slot->queue) fail("sent to queue %u, stored in %llu", slot->queue, (unsigned long long)queue_id);
    if (offset < slot->offset) fail("offset %llu of queue %u after %llu", (unsigned long long)offset, slot->queue, (unsigned long long)slot->offset - 1);
    if (offset + count > queue->first + queue->quota) fail("offset %llu of queue %u, which has been sent less", (unsigned long long)offset, slot->queue);
    check_identities(rocketmq_ext(frame, "msgId"), count);
    for (uint64_t at = offset - queue->first, end = at + count; at < end; at++) {
        if (queue->seen[at / 8] & 1u << at % 8) fail("offset %llu of queue %u twice", (unsigned long long)(queue->first + at), slot->queue);
        queue->seen[at / 8] |= (uint8_t)(1u << at % 8);
    }
    if (offset + count > queue->next) queue->next = offset + count;
    return count;
}
