/* The RocketMQ half of the generator: the modes whose names begin with `rocketmq-`.
 *
 * It shares the loop's parts with the others (connections that read and write without waiting, progress, the report) and keeps the
 * same laws, but for one: requests are written one by one when they are sent, as no two headers are equal. Every body carries the
 * number of its message in its topic and a word that follows from it, every request that is under way has a slot, and what a server
 * says of a message (its queue, its offset, its identity) must be what only one who has stored it can say. Read in this order:
 * rocketmq_frame.c (both headers), rocketmq_route.c (what is asked before and after the clock runs), rocketmq_send.c, rocketmq_pull.c
 * (the roles), rocketmq_run.c (the loop), rocketmq_report.c.
 */
#ifndef ROCKETMQ_H
#define ROCKETMQ_H

#include "loadgen.h"

enum rocketmq_code {
    ROCKETMQ_PULL = 11, ROCKETMQ_CREATE_TOPIC = 17, ROCKETMQ_MAX_OFFSET = 30, ROCKETMQ_ROUTE = 105, ROCKETMQ_SEND = 310, ROCKETMQ_SEND_BATCH = 320
};
enum { ROCKETMQ_SUCCESS = 0, ROCKETMQ_NO_TOPIC = 17, ROCKETMQ_NOT_FOUND = 19, ROCKETMQ_AGAIN = 20 };

enum {
    QUEUE_COUNT_MAX = 64,
    EXT_COUNT_MAX = 24,
    /* More than any head of ours: names have 60 bytes at most, properties 100. */
    HEAD_BYTES_MAX = 2048,
    PULL_MESSAGES = 32,
    /* Opaques of seven digits, so that all requests of a kind are as long as each other. */
    OPAQUE_FIRST = 1000000,
    OPAQUE_COUNT = 9000000,
    /* A body begins with the number of its message in the topic, and a word made of it. */
    BODY_NUMBER_AT = 0,
    BODY_WORD_AT = 8,
    ROCKETMQ_BODY_BYTES_MIN = 12,
};

struct rocketmq_text {
    const uint8_t *at;
    size_t size;
};

struct rocketmq_field {
    struct rocketmq_text name, value;
};

/* A frame that has come; the pointers are into the connection's input. Text of a JSON header is as it stands there, escapes and all. */
struct rocketmq_frame {
    int32_t code, opaque, flag;
    bool binary;
    struct rocketmq_text remark, body;
    struct rocketmq_field ext[EXT_COUNT_MAX];
    uint32_t ext_count;
};

/* A request that is under way, or nothing: `opaque` is 0 then. */
struct rocketmq_slot {
    int32_t opaque;
    uint32_t generation, queue;
    uint64_t sent_ns;
    uint64_t offset; /* pull: what was asked for; send: every answer for this queue that came before was below */
};

/* A queue as the topic has it when we come, and what we know of it since. */
struct rocketmq_queue {
    uint64_t first, quota; /* send: our messages get the offsets from `first` on, `quota` of them */
    uint64_t next;         /* send: one more than the highest offset answered; pull: the offset to ask for */
    uint8_t *seen;         /* send: a bit for each offset from `first` on */
    bool waits;            /* pull: no request is under way */
};

struct rocketmq_connection {
    struct connection base; /* first: the loop knows nothing else */
    struct rocketmq_slot *slots;
    uint32_t slot_count, free_count;
    uint32_t *free_slots;
};

struct rocketmq_run {
    struct run run; /* first: for what all parts share */
    struct rocketmq_connection control; /* to the broker, for what is asked before and after */
    struct rocketmq_connection *connections;
    char broker_host[64], broker_name[64];
    uint16_t broker_port;
    struct rocketmq_queue queues[QUEUE_COUNT_MAX];
    uint32_t topic_queue_count, queue_count; /* of the topic, and of those the first so many that we use */
    uint64_t stored;  /* messages that the topic held when we came */
    uint64_t quota;   /* answers, those of the warm-up too; pull: messages */
    uint64_t begun, answered; /* requests */
    uint64_t done;    /* messages sent or pulled; anywhere: answers */
    uint64_t pulled, pulled_bytes;
    uint8_t *pulled_seen; /* by the number in the body: a bit for each message of the topic */
    uint8_t *bodies;  /* to choose from */
    uint64_t random;
    bool timed;       /* the warm-up is over; what had come by then is not counted */
    uint64_t warmed, answered_before, pulled_before;
};

/* rocketmq_frame.c */
struct rocketmq_text rocketmq_word(const char *text);
uint64_t rocketmq_number(struct rocketmq_text text, const char *what);
struct rocketmq_text rocketmq_ext(const struct rocketmq_frame *frame, const char *name);
uint8_t *rocketmq_head(uint8_t *at, bool binary, int code, int32_t opaque, const struct rocketmq_field *fields, uint32_t count, size_t body_bytes);
bool rocketmq_next(struct rocketmq_connection *connection, size_t *position, struct rocketmq_frame *frame);
_Noreturn void rocketmq_refused(const char *what, const struct rocketmq_frame *frame);
uint32_t rocketmq_u32(const uint8_t *at);
uint64_t rocketmq_u64(const uint8_t *at);

/* rocketmq_route.c */
void rocketmq_find(struct rocketmq_run *rocketmq);
void rocketmq_offsets(struct rocketmq_run *rocketmq);
void rocketmq_confirm(struct rocketmq_run *rocketmq);
void rocketmq_open(struct rocketmq_connection *connection, const struct options *options, uint32_t slot_count, const char *host, uint16_t port);

/* rocketmq_send.c, rocketmq_pull.c: what is sent when a slot is free, and what becomes of an answer */
void rocketmq_send_prepare(struct rocketmq_run *rocketmq);
bool rocketmq_send_next(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection);
uint32_t rocketmq_send_answer(struct rocketmq_run *rocketmq, const struct rocketmq_slot *slot, const struct rocketmq_frame *frame);
void rocketmq_pull_prepare(struct rocketmq_run *rocketmq);
bool rocketmq_pull_next(struct rocketmq_run *rocketmq, struct rocketmq_connection *connection);
uint32_t rocketmq_pull_answer(struct rocketmq_run *rocketmq, const struct rocketmq_slot *slot, const struct rocketmq_frame *frame);
uint32_t rocketmq_body_word(uint64_t number);

/* rocketmq_run.c, rocketmq_report.c */
struct rocketmq_slot *rocketmq_take_slot(struct rocketmq_connection *connection);
uint8_t *rocketmq_stage(struct rocketmq_connection *connection, size_t body_bytes);
void rocketmq_staged(struct rocketmq_connection *connection, const uint8_t *end);
void rocketmq_execute(struct rocketmq_run *rocketmq);
void rocketmq_report(const struct rocketmq_run *rocketmq, bool complete);

#endif
