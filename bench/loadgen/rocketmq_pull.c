/* Pulling: at most one request under way for each queue, the next one when the answer is there; or at random offsets. */
#include "rocketmq.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    DECIMAL_BYTES_MAX = 24,
    RECORD_MAGIC = 0xDAA320A7,
    /* Of a stored message, in order: what stands before its body if both hosts have four bytes, and where in it. */
    SIZE_AT = 0, MAGIC_AT = 4, CRC_AT = 8, QUEUE_AT = 12, OFFSET_AT = 20, SYSFLAG_AT = 36,
    FIXED_BYTES = 88,
    SYSFLAG_LONG_HOSTS = 0x30,
    /* The checksum of every so many-th message is computed. */
    CRC_EVERY = 16,
};

static bool anywhere(const struct rocketmq_run *rocketmq) { return rocketmq->run.options.mode == MODE_ROCKETMQ_ANYWHERE; }

void rocketmq_pull_prepare(struct rocketmq_run *rocketmq) {
    const struct options *options = &rocketmq->run.options;
    rocketmq->quota = options->messages + options->warm_up;
    rocketmq->random = 88172645463325252ULL;
    for (uint32_t i = 0; i < rocketmq->queue_count; i++) {
        struct rocketmq_queue *queue = &rocketmq->queues[i];
        queue->quota = rocketmq->quota / rocketmq->queue_count + (i < rocketmq->quota % rocketmq->queue_count);
        if (options->foreign) queue->quota = UINT64_MAX;
        else if (anywhere(rocketmq) ? queue->first < PULL_MESSAGES : queue->first < queue->quota)
            fail("queue %u holds %llu messages only", i, (unsigned long long)queue->first);
        queue->next = 0;
        queue->waits = true;
    }
    if (anywhere(rocketmq) || options->foreign) return;
    rocketmq->pulled_seen = calloc(rocketmq->stored / 8 + 1, 1);
    if (!rocketmq->pulled_seen) fail("no memory for %llu numbers", (unsigned long long)rocketmq->stored);
}

static struct rocketmq_text decimal(char *target, uint64_t value) {
    char *at = target + DECIMAL_BYTES_MAX;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    return (struct rocketmq_text){(const uint8_t *)at, (size_t)(target + DECIMAL_BYTES_MAX - at)};
}

static uint64_t random_below(struct rocketmq_run *rocketmq, uint64_t bound) {
    rocketmq->random = rocketmq->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (rocketmq->random >> 20) % bound;
}

/* Which queue is pulled next, and from where; false when nothing is to be asked now. */
static bool choose(struct rocketmq_run *rocketmq, uint32_t *index, uint64_t *offset) {
    if (anywhere(rocketmq)) {
        if (rocketmq->begun == rocketmq->quota) return false;
        *index = (uint32_t)random_below(rocketmq, rocketmq->queue_count);
        *offset = random_below(rocketmq, rocketmq->queues[*index].first - PULL_MESSAGES + 1);
        return true;
    }
    for (*index = 0; *index < rocketmq->queue_count; ++*index) {
        struct rocketmq_queue *queue = &rocketmq->queues[*index];
        if (!queue->waits || queue->next >= queue->quota) continue;
        queue->waits = false;
        *offset = queue->next;
        return true;
    }
    return false;
}

bool rocketmq_pull_next(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection) {
    const struct options *options = &rocketmq->run.options;
    char queue[DECIMAL_BYTES_MAX], from[DECIMAL_BYTES_MAX], wanted[DECIMAL_BYTES_MAX];
    uint32_t index;
    uint64_t offset;
    if (!choose(rocketmq, &index, &offset)) return false;
    rocketmq->begun++;
    struct rocketmq_slot *slot = rocketmq_take_slot(connection);
    slot->queue = index;
    slot->offset = offset;
    /* With its subscription in the request, as lite consumers and other languages' send it: nobody has to be a member of a group. */
    const struct rocketmq_field fields[] = {
        {rocketmq_word("queueId"), decimal(queue, index)}, {rocketmq_word("maxMsgNums"), decimal(wanted, PULL_MESSAGES)},
        {rocketmq_word("sysFlag"), rocketmq_word("6")}, {rocketmq_word("suspendTimeoutMillis"), rocketmq_word("15000")},
        {rocketmq_word("commitOffset"), rocketmq_word("0")}, {rocketmq_word("bname"), rocketmq_word(rocketmq->broker_name)},
        {rocketmq_word("topic"), rocketmq_word(options->topic)}, {rocketmq_word("queueOffset"), decimal(from, offset)},
        {rocketmq_word("expressionType"), rocketmq_word("TAG")}, {rocketmq_word("subscription"), rocketmq_word("*")},
        {rocketmq_word("subVersion"), rocketmq_word("0")}, {rocketmq_word("consumerGroup"), rocketmq_word(options->group)},
    };
    rocketmq_staged(connection, rocketmq_head(rocketmq_stage(connection, 0), options->binary, ROCKETMQ_PULL, slot->opaque, fields, sizeof fields / sizeof *fields, 0));
    return true;
}

static void check_number(struct rocketmq_run *rocketmq, const uint8_t *body) {
    uint64_t number;
    uint32_t word;
    memcpy(&number, body + BODY_NUMBER_AT, sizeof number);
    memcpy(&word, body + BODY_WORD_AT, sizeof word);
    if (word != rocketmq_body_word(number) || number >= rocketmq->stored) fail("a body that was never sent");
    if (!rocketmq->pulled_seen) return;
    uint8_t *byte = &rocketmq->pulled_seen[number / 8], mask = (uint8_t)(1u << number % 8);
    if (*byte & mask) fail("message %llu twice", (unsigned long long)number);
    *byte |= mask;
}

/* One stored message, which must fill `size` bytes to the last one: the body with its checksum, the topic, the properties. */
static void check_message(struct rocketmq_run *rocketmq, const uint8_t *at, size_t size, const struct rocketmq_slot *slot, uint64_t offset) {
    const struct options *options = &rocketmq->run.options;
    size_t topic_size = strlen(options->topic), body_size = options->size_bytes;
    uint32_t sysflag = rocketmq_u32(at + SYSFLAG_AT);
    if (rocketmq_u32(at + MAGIC_AT) != RECORD_MAGIC) fail("a message with the magic %08x", rocketmq_u32(at + MAGIC_AT));
    if (rocketmq_u32(at + QUEUE_AT) != slot->queue) fail("a message of queue %u instead of %u", rocketmq_u32(at + QUEUE_AT), slot->queue);
    if (rocketmq_u64(at + OFFSET_AT) != offset) fail("offset %llu of queue %u instead of %llu", (unsigned long long)rocketmq_u64(at + OFFSET_AT), slot->queue, (unsigned long long)offset);
    if (sysflag & SYSFLAG_LONG_HOSTS) fail("a message with the flags %x", sysflag);
    if (size < FIXED_BYTES + body_size + 1 + topic_size + 2 || rocketmq_u32(at + FIXED_BYTES - 4) != body_size) fail("a message of %zu bytes with a body of %u", size, rocketmq_u32(at + FIXED_BYTES - 4));
    const uint8_t *body = at + FIXED_BYTES, *topic = body + body_size, *properties = topic + 1 + topic_size;
    if (*topic != topic_size || memcmp(topic + 1, options->topic, topic_size)) fail("a message of another topic");
    size_t properties_size = (size_t)properties[0] << 8 | properties[1];
    if (properties + 2 + properties_size != at + size) fail("a message of %zu bytes with %zu of properties", size, properties_size);
    if (!options->foreign) check_number(rocketmq, body);
    if (rocketmq->pulled % CRC_EVERY) return;
    if ((crc32(0, body, (uInt)body_size) & 0x7FFFFFFF) != rocketmq_u32(at + CRC_AT)) fail("a body that is not that of its checksum");
    if (!options->foreign && !memmem(properties + 2, properties_size, "UNIQ_KEY\001", 9)) fail("a message without its key");
}

uint32_t rocketmq_pull_answer(struct rocketmq_run *rocketmq, const struct rocketmq_slot *slot, const struct rocketmq_frame *frame) {
    struct rocketmq_queue *queue = &rocketmq->queues[slot->queue];
    const uint8_t *at = frame->body.at, *end = at + frame->body.size;
    uint32_t count = 0;
    if (rocketmq->run.options.foreign && (frame->code == ROCKETMQ_NOT_FOUND || frame->code == ROCKETMQ_AGAIN)) { /* nothing has come meanwhile */
        queue->waits = true;
        return 0;
    }
    if (frame->code != ROCKETMQ_SUCCESS) rocketmq_refused("a pull", frame);
    while (at < end) {
        size_t size = end - at < FIXED_BYTES ? 0 : rocketmq_u32(at + SIZE_AT);
        if (size < FIXED_BYTES || size > (size_t)(end - at)) fail("a message of %zu bytes where %zu are left", size, (size_t)(end - at));
        check_message(rocketmq, at, size, slot, slot->offset + count);
        at += size;
        count++;
        rocketmq->pulled++;
    }
    uint64_t next = rocketmq_number(rocketmq_ext(frame, "nextBeginOffset"), "nextBeginOffset");
    if (!count || count > PULL_MESSAGES) fail("%u messages in an answer", count);
    if (next != slot->offset + count) fail("go on at %llu after %u messages from %llu", (unsigned long long)next, count, (unsigned long long)slot->offset);
    if (rocketmq_number(rocketmq_ext(frame, "maxOffset"), "maxOffset") < next) fail("a queue that ends before what was pulled");
    rocketmq_number(rocketmq_ext(frame, "minOffset"), "minOffset");
    rocketmq_number(rocketmq_ext(frame, "suggestWhichBrokerId"), "suggestWhichBrokerId");
    rocketmq->pulled_bytes += frame->body.size;
    if (anywhere(rocketmq)) return 1;
    queue->next = next;
    queue->waits = true;
    return count;
}
