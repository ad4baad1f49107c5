/* loadgen: a load generator for the protocols of NSQ, NATS, RocketMQ and PHPMQ, built to be much faster than the servers that it measures.
 *
 * Laws: one thread, one epoll loop, no work per message beyond walking the frames and writing the settles; what is
 * published is prepared before the clock starts; every wait ends at the deadline; a frame that was not expected ends
 * the run with an error. Read in this order: options.c (what can be asked), wire.c (frames and connections),
 * pack.c and snappy.c (compression), publish.c, consume.c, latency.c (the roles), run.c (the loop and the modes),
 * lead.c (publishing and consuming in two processes), report.c (the answer). What is said here of frames and settles is
 * NSQ's; NATS begins in nats.h, RocketMQ in rocketmq.h, PHPMQ in phpmq.h.
 */
#ifndef LOADGEN_H
#define LOADGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mode {
    MODE_PUB, MODE_MPUB, MODE_SUB, MODE_BOTH, MODE_LATENCY, MODE_IDLE,
    MODE_NATS_PUB, MODE_NATS_BOTH, MODE_NATS_SUB, MODE_NATS_REQUEST, MODE_NATS_IDLE,
    MODE_ROCKETMQ_SEND, MODE_ROCKETMQ_BATCH, MODE_ROCKETMQ_PULL, MODE_ROCKETMQ_ANYWHERE
};
enum role { ROLE_PUBLISHER, ROLE_CONSUMER, ROLE_TIMED, ROLE_IDLE };
enum compression { PLAIN, SNAPPY, DEFLATE };

/* Progress is kept in this many equal slices, to show whether a rate holds. */
enum { SLICE_COUNT = 10, CHANNEL_COUNT_MAX = 64 };

/* The loop: events taken at a time, and how often the deadline is looked at. */
enum { EVENT_COUNT = 1024, DEADLINE_CHECK_MS = 100, FOLLOW_CHECK_MS = 1 };

struct options {
    enum mode mode;
    const char *mode_name;
    char host[64];
    uint16_t port;
    const char *topic;
    const char *channel;
    uint64_t messages;
    uint32_t size_bytes;
    uint32_t batch;
    uint32_t connections; /* publishers; in sub and idle: consumers (per channel) */
    uint32_t consumers;   /* consumers per channel in both and latency */
    uint32_t window;      /* commands in flight per publishing connection */
    uint32_t rdy;
    uint32_t channels;
    uint32_t topics;
    uint32_t subscribers; /* connections that subscribe with RDY 0 while others publish */
    uint32_t defer_ms;
    uint32_t message_timeout_ms;
    uint32_t rate;
    uint64_t lead_max; /* messages that publishers may be ahead of the slowest channel; 0: no bound */
    double deadline_s;
    bool hold_first; /* never settle the first message of each channel */
    enum compression compression;
    const char *auth; /* the secret to log in with; NULL: nobody asks */
    bool words;       /* bodies of words, which can be compressed, instead of random letters */
    /* NATS: the topics are its subjects, `subscribers` get everything */
    const char *queue;
    uint32_t members; /* of the queue group */
    uint32_t slow;    /* subscribers that do not read until the others are through */
    uint32_t subscriptions; /* of each idle connection */
    bool wildcard;    /* one subscription to all subjects instead of one to each */
    uint32_t settle_ms; /* between subscribing and publishing */
    char other_host[64];
    uint16_t other_port; /* the server of those who receive; 0: the same */
    /* RocketMQ: the address is its nameserver's */
    const char *group;
    uint32_t queues;  /* of the topic, the first so many */
    uint64_t warm_up; /* messages before the clock starts */
    bool binary;      /* headers in RocketMQ's own form instead of JSON */
    bool foreign;     /* what is pulled was made by others, and comes while it is pulled */
    bool follow;      /* publish no further ahead of another process than --lead-max */
    bool ready;       /* say when everybody who receives is there */
};

/* What publishers send: `count` commands, one after the other, prepared once and sent again and again. */
struct period {
    uint8_t *bytes;
    size_t size_bytes;
    size_t *starts; /* count + 1 positions: where each command starts */
    uint32_t count;
    uint32_t messages_per_command;
};

struct connection {
    int fd;
    enum role role;
    uint32_t channel; /* of all channels of all topics: those of the first topic come first */
    bool done;
    bool watches_output;
    uint8_t *input;
    size_t input_used, input_room;
    uint8_t *output;
    size_t output_sent, output_used, output_room;
    struct packing *packing; /* NULL until compression is on */
    /* publishers */
    uint64_t commands_quota, commands_allowed, commands_answered;
    uint64_t bytes_allowed, bytes_sent;
    uint64_t *allowed_at_ns; /* ring of `window` times */
    /* consumers */
    bool closing;
    /* latency: the server has not taken all bytes, and the messages since then were due before they were sent */
    bool blocked;
};

struct channel_progress {
    uint64_t received, redelivered;
    bool held;
};

struct run {
    struct options options;
    struct connection *connections;
    uint32_t connection_count;
    int epoll_fd, timer_fd;
    struct period period;
    struct channel_progress *channels;
    uint32_t channel_count, consumers_per_channel; /* consumers come first among the connections, in order of channels */
    uint64_t published, published_quota;
    uint64_t received_quota; /* of each channel */
    uint64_t received_all;   /* by all channels together, what came twice left out */
    uint64_t received;       /* what counts as consumed: see consume.c */
    uint64_t started_ns, ended_ns, deadline_ns;
    double cpu_before_s; /* what the generator had used when the clock started, where that is told apart */
    uint64_t slice_ns[SLICE_COUNT + 1];
    uint32_t slices_done;
    uint32_t open_count; /* connections that still have something to do */
    uint64_t *samples_ns; /* publish to answer, or publish to receive */
    uint64_t sample_count, sample_room;
    uint64_t late_ns_max; /* latency: how late the generator itself was */
    uint64_t timed_sent;
};

uint64_t now_ns(void);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t size_bytes);

void parse_options(int argument_count, char **arguments, struct options *options);

/* wire.c */
enum frame_type { FRAME_RESPONSE = 0, FRAME_ERROR = 1, FRAME_MESSAGE = 2 };
enum { MESSAGE_HEAD_BYTES = 26, MESSAGE_ID_AT = 10, MESSAGE_ID_BYTES = 16, ATTEMPTS_AT = 8 };
struct frame {
    uint32_t type;
    const uint8_t *data;
    size_t size_bytes;
};
void put_u32(uint8_t *at, uint32_t value);
void connect_socket(struct connection *connection, const char *host, uint16_t port);
void send_all(struct connection *connection, const void *bytes, size_t size_bytes);
void connection_open(struct connection *connection, const struct options *options);
void connection_subscribe(struct connection *connection, const char *topic, const char *channel);
void connection_start(struct connection *connection);
bool connection_receive(struct connection *connection);
bool next_frame(struct connection *connection, size_t *position, struct frame *frame);
void drop_input(struct connection *connection, size_t position);
uint8_t *reserve_output(struct connection *connection, size_t size_bytes);
void flush_output(struct connection *connection);
bool output_waits(const struct connection *connection);
bool is_response(const struct frame *frame, const char *text);
_Noreturn void unexpected_frame(const struct frame *frame);

/* lead.c */
void lead_open(const char *path);
void lead_tell(uint64_t received);
uint64_t lead_heard(void);

/* pack.c: compression. `pack` makes bytes that can be sent again and again, `pack_stored` wraps them as they are, which
 * costs next to nothing; `unpack` moves what has come into `target` and gives its size. */
size_t packed_size_max(size_t size_bytes);
size_t pack(enum compression compression, uint8_t *target, const uint8_t *plain, size_t size_bytes);
struct packing *packing_start(enum compression compression, const uint8_t *received, size_t received_size_bytes);
size_t pack_stored(struct packing *packing, uint8_t *target, const uint8_t *plain, size_t size_bytes);
size_t pack_greeting(const struct packing *packing, uint8_t *target);
uint8_t *unpack_room(struct packing *packing, size_t *room_bytes);
void unpack_received(struct packing *packing, size_t size_bytes);
size_t unpack(struct packing *packing, uint8_t *target, size_t room_bytes);
/* What is packed and has not been sent. */
uint8_t *packed_output(struct packing *packing, size_t room_bytes);
void packed_add(struct packing *packing, size_t size_bytes);
const uint8_t *packed_waiting(const struct packing *packing, size_t *size_bytes);
void packed_sent(struct packing *packing, size_t size_bytes);

/* snappy.c: chunks of the framing format, without the identifier of the stream */
enum { SNAPPY_BLOCK_BYTES_MAX = 65536, SNAPPY_CHUNK_HEAD_BYTES = 8 };
size_t snappy_chunk(uint8_t *target, const uint8_t *plain, size_t size_bytes);
size_t snappy_stored_chunk(uint8_t *target, const uint8_t *plain, size_t size_bytes);
size_t snappy_unchunk(uint8_t *target, size_t room_bytes, const uint8_t *chunk, size_t chunk_bytes);

/* publish.c, consume.c, latency.c: what a role does when its socket is ready */
void fill_body(uint8_t *at, uint32_t size_bytes, uint64_t *state);
void period_build(struct period *period, const struct options *options);
void publisher_share(struct run *run);
void publisher_push(struct run *run, struct connection *connection);
void publisher_receive(struct run *run, struct connection *connection);
void consumer_begin(struct run *run, struct connection *connection);
void consumer_receive(struct run *run, struct connection *connection);
void timed_receive(struct run *run, struct connection *connection);
void timed_tick(struct run *run, struct connection *connection);
void idle_receive(struct run *run, struct connection *connection);

/* run.c, report.c */
void mark_progress(struct run *run, uint64_t done, uint64_t total);
void watch_output(struct run *run, struct connection *connection, bool wanted);
void finish_connection(struct run *run, struct connection *connection);
void run_prepare(struct run *run);
void run_end(bool complete);
void execute(struct run *run);
double cpu_seconds(void);
void say_ready(const struct options *options);
void report_begin(const struct run *run, uint64_t done, bool complete);
void report_slices(const struct run *run);
void report_samples(const struct run *run);
void report(const struct run *run);

#endif
