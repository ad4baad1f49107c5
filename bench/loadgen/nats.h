/* The NATS half of the generator: the modes whose names begin with `nats-`.
 *
 * It shares the loop's parts with the NSQ half (connections that read and write without waiting, progress, the report) and
 * keeps the same laws. Every message carries who sent it and its number among those of its sender on its subject, so that a
 * message that is lost, comes twice or out of order ends the run, wherever it happens. Read in this order: nats_wire.c (the
 * protocol), nats_publish.c, nats_consume.c, nats_request.c (the roles), nats_run.c (the loop), nats_report.c.
 */
#ifndef NATS_H
#define NATS_H

#include "loadgen.h"

enum nats_role { NATS_PUBLISHER, NATS_SUBSCRIBER, NATS_MEMBER, NATS_SLOW, NATS_REQUESTER, NATS_RESPONDER, NATS_IDLE };

/* What a body begins with: u64 number, u32 publisher, in the machine's own byte order. */
enum { NATS_NUMBER_AT = 0, NATS_PUBLISHER_AT = 8, NATS_BODY_BYTES_MIN = 12 };

enum nats_verb { NATS_MESSAGE, NATS_PING, NATS_PONG, NATS_INFO };

/* One operation that has come; the pointers are into the connection's input. */
struct nats_operation {
    enum nats_verb verb;
    const uint8_t *subject, *reply, *body;
    size_t subject_size, reply_size, body_size;
    uint64_t sid;
};

/* Who must get every message once: a subscriber, or a queue group. */
struct nats_taker {
    uint64_t received;
    uint8_t *seen; /* of a group: a bit for each message */
    bool slow;     /* need not get everything, and says nothing of when the run is over */
};

/* What a publisher sends at a time: messages to the subjects in turn, prepared once; only the numbers in the bodies change. */
struct nats_round {
    uint8_t *bytes;
    size_t *starts; /* count + 1 positions */
    uint32_t *bodies; /* count positions */
    uint32_t count;
};

struct nats_connection {
    struct connection base; /* first: the loop knows nothing else */
    enum nats_role role;
    uint32_t index; /* among those of its role */
    struct nats_taker *taker;
    uint64_t *next; /* by publisher and subject: the number that comes next, or for a member the least that may come */
    uint64_t got;   /* messages; the taker's together */
    bool closed;    /* a slow one: the server has ended it */
    bool early;     /* something came behind the answer that was waited for before the loop */
    /* publishers */
    struct nats_round round;
    uint64_t quota, begun, taken; /* messages: to send; in rounds that have begun; that the server has answered for */
    size_t round_sent, round_end;
    uint32_t pongs_owed;
    /* the requester */
    uint64_t asked, asked_at_ns;
};

struct nats_run {
    struct run run; /* first: for what both halves share */
    struct nats_connection *connections;
    struct nats_taker *takers;
    uint32_t connection_count, taker_count;
    uint64_t *first_bits; /* by publisher and subject: where its messages begin in `seen` */
    uint32_t waiting;     /* publishers and takers without which the run is not over */
    bool checking;        /* it is over: does anything come that may not? */
};

/* nats_wire.c */
void nats_subject(char *name, size_t room, const struct options *options, uint32_t index);
void nats_open(struct nats_connection *connection, const struct options *options, const char *host, uint16_t port);
void nats_command(struct nats_connection *connection, const char *bytes, size_t size_bytes);
void nats_settle(struct nats_connection *connection);
bool nats_receive(struct nats_connection *connection);
bool nats_next(struct nats_connection *connection, size_t *position, struct nats_operation *operation);
void nats_answer_ping(struct nats_run *nats, struct nats_connection *connection);
_Noreturn void nats_unexpected(const struct nats_operation *operation);

/* nats_publish.c */
void nats_publisher_prepare(struct nats_run *nats, struct nats_connection *connection);
void nats_publisher_push(struct nats_run *nats, struct nats_connection *connection);
void nats_publisher_receive(struct nats_run *nats, struct nats_connection *connection);
uint64_t nats_quota(const struct options *options, uint32_t publisher, uint32_t subject);

/* nats_consume.c */
void nats_subscribe(struct nats_connection *connection, const struct options *options);
void nats_consumer_prepare(struct nats_run *nats, struct nats_connection *connection);
void nats_consumer_receive(struct nats_run *nats, struct nats_connection *connection);
void nats_slow_drain(struct nats_run *nats, struct nats_connection *connection);

/* nats_request.c */
void nats_ask(struct nats_run *nats, struct nats_connection *connection);
void nats_requester_receive(struct nats_run *nats, struct nats_connection *connection);
void nats_responder_receive(struct nats_run *nats, struct nats_connection *connection);

/* nats_run.c, nats_report.c */
void nats_one_less(struct nats_run *nats);
void nats_execute(struct nats_run *nats);
void nats_report(const struct nats_run *nats);

#endif
