/* The modes: which connections there are, the loop, the deadline. */
#include "loadgen.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Round trips kept for the percentiles: all of a latency run, the first so many of a publishing run. */
    SAMPLE_COUNT_MAX = 4000000,
    EXIT_ERROR = 2,
    EXIT_DEADLINE = 3,
};

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

_Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_ERROR);
}

void *allocate(size_t size_bytes) {
    void *memory = malloc(size_bytes);
    if (!memory) fail("no memory for %zu bytes", size_bytes);
    return memory;
}

void mark_progress(struct run *run, uint64_t done, uint64_t total) {
    if (!run->options.follow) lead_tell(done);
    while (run->slices_done < SLICE_COUNT && done >= total / SLICE_COUNT * (run->slices_done + 1)) run->slice_ns[++run->slices_done] = now_ns();
}

void watch_output(struct run *run, struct connection *connection, bool wanted) {
    if (connection->done || connection->watches_output == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(run->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    connection->watches_output = wanted;
}

/* Nothing more is expected of a connection: what its peer does from now on, even closing it, is of no interest. */
void finish_connection(struct run *run, struct connection *connection) {
    if (connection->done) return;
    connection->done = true;
    run->open_count--;
    if (epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL)) fail("epoll_ctl: %s", strerror(errno));
}

static void add_connections(struct run *run, enum role role, uint32_t count, uint32_t channel) {
    for (uint32_t i = 0; i < count; i++) {
        struct connection *connection = &run->connections[run->connection_count++];
        connection->role = role;
        connection->channel = channel;
        if (role != ROLE_IDLE) run->open_count++;
    }
}

/* Consumers come first: their channels exist before anything is published. */
static void plan_connections(struct run *run) {
    const struct options *options = &run->options;
    bool publishes = options->mode != MODE_SUB && options->mode != MODE_IDLE;
    bool consumes = options->mode == MODE_SUB || options->mode == MODE_BOTH || options->mode == MODE_LATENCY;
    uint32_t consumers = options->mode == MODE_SUB ? options->connections : options->consumers;
    run->consumers_per_channel = consumers;
    run->channel_count = consumes ? options->topics * options->channels : 1;
    run->received_quota = options->messages / options->topics;
    run->channels = calloc(run->channel_count, sizeof *run->channels);
    size_t room = (size_t)options->connections + (size_t)run->channel_count * consumers + options->subscribers;
    run->connections = calloc(room, sizeof *run->connections);
    if (!run->connections || !run->channels) fail("no memory for %zu connections", room);
    for (uint32_t channel = 0; consumes && channel < run->channel_count; channel++) add_connections(run, ROLE_CONSUMER, consumers, channel);
    add_connections(run, ROLE_IDLE, options->mode == MODE_IDLE ? options->connections : options->subscribers, 0);
    if (publishes) add_connections(run, options->mode == MODE_LATENCY ? ROLE_TIMED : ROLE_PUBLISHER, options->mode == MODE_LATENCY ? 1 : options->connections, 0);
}

static void subscribe(const struct run *run, struct connection *connection, uint32_t index) {
    const struct options *options = &run->options;
    char topic[96], channel[80];
    uint32_t topic_index = options->mode == MODE_IDLE ? index % options->topics : connection->channel / options->channels;
    uint32_t channel_index = connection->channel % options->channels;
    if (options->topics > 1 && (options->mode == MODE_IDLE || connection->role == ROLE_CONSUMER))
        snprintf(topic, sizeof topic, "%s-%05u", options->topic, topic_index);
    else snprintf(topic, sizeof topic, "%s", options->topic);
    if (channel_index) snprintf(channel, sizeof channel, "%s-%u", options->channel, channel_index);
    else snprintf(channel, sizeof channel, "%s", options->channel);
    connection_subscribe(connection, topic, channel);
}

static void open_connections(struct run *run) {
    for (uint32_t i = 0; i < run->connection_count; i++) {
        struct connection *connection = &run->connections[i];
        connection_open(connection, &run->options);
        bool wants_channel = connection->role == ROLE_CONSUMER || (connection->role == ROLE_IDLE && *run->options.channel);
        if (wants_channel) subscribe(run, connection, i);
        connection_start(connection);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
        if (now_ns() > run->deadline_ns) fail("the deadline came while connecting (%u of %u)", i, run->connection_count);
    }
}

static void start_timer(struct run *run) {
    /* Without this the kernel may wake us 50 us late. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    run->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    long interval_ns = 1000000000L / (long)run->options.rate;
    struct timespec interval = {.tv_sec = interval_ns / 1000000000L, .tv_nsec = interval_ns % 1000000000L};
    struct itimerspec times = {.it_interval = interval, .it_value = interval};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = run};
    if (run->timer_fd < 0 || timerfd_settime(run->timer_fd, 0, &times, NULL) || epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, run->timer_fd, &event))
        fail("timer: %s", strerror(errno));
}

static void handle(struct run *run, struct connection *connection) {
    if (connection->done) return;
    switch (connection->role) {
    case ROLE_PUBLISHER:
        publisher_receive(run, connection);
        publisher_push(run, connection);
        break;
    case ROLE_CONSUMER:
        flush_output(connection);
        consumer_receive(run, connection);
        watch_output(run, connection, output_waits(connection));
        break;
    case ROLE_TIMED:
        flush_output(connection);
        watch_output(run, connection, output_waits(connection));
        timed_receive(run, connection);
        break;
    case ROLE_IDLE: idle_receive(run, connection); break;
    }
}

static void push_publishers(struct run *run) {
    for (uint32_t i = 0; i < run->connection_count; i++)
        if (run->connections[i].role == ROLE_PUBLISHER) publisher_push(run, &run->connections[i]);
}

static void tick(struct run *run) {
    uint64_t expirations;
    if (read(run->timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN) fail("timer: %s", strerror(errno));
    for (uint32_t i = 0; i < run->connection_count; i++)
        if (run->connections[i].role == ROLE_TIMED) timed_tick(run, &run->connections[i]);
}

static void begin(struct run *run) {
    run->started_ns = run->slice_ns[0] = now_ns();
    for (uint32_t i = 0; i < run->connection_count; i++) {
        struct connection *connection = &run->connections[i];
        if (connection->role == ROLE_CONSUMER) {
            consumer_begin(run, connection);
        }
    }
    say_ready(&run->options);
    push_publishers(run);
    if (run->options.mode == MODE_LATENCY) start_timer(run);
}

static void loop(struct run *run) {
    struct epoll_event events[EVENT_COUNT];
    bool idle = run->options.mode == MODE_IDLE;
    while (idle || run->open_count) {
        int count = epoll_wait(run->epoll_fd, events, EVENT_COUNT, run->options.follow ? FOLLOW_CHECK_MS : DEADLINE_CHECK_MS);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == run) tick(run);
            else handle(run, events[i].data.ptr); /* a connection that an earlier event has finished does nothing */
        }
        /* A publisher that waited for the consumers is not woken by its own socket. */
        if (run->options.lead_max) push_publishers(run);
        if (now_ns() > run->deadline_ns) break;
    }
    run->ended_ns = now_ns();
}

/* What every run needs before its connections are made. */
void run_prepare(struct run *run) {
    const struct options *options = &run->options;
    run->deadline_ns = now_ns() + (uint64_t)(options->deadline_s * 1e9);
    run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (run->epoll_fd < 0) fail("epoll: %s", strerror(errno));
    run->published_quota = options->messages;
    run->sample_room = options->messages < SAMPLE_COUNT_MAX ? options->messages : SAMPLE_COUNT_MAX;
    run->samples_ns = allocate(run->sample_room * sizeof *run->samples_ns);
}

/* After the report: the exit status says whether the run is whole. */
void run_end(bool complete) {
    if (complete) return;
    fputs("loadgen: the deadline came first\n", stderr);
    exit(EXIT_DEADLINE);
}

void execute(struct run *run) {
    const struct options *options = &run->options;
    run_prepare(run);
    plan_connections(run);
    open_connections(run);
    if (options->mode == MODE_PUB || options->mode == MODE_MPUB || options->mode == MODE_BOTH) {
        period_build(&run->period, options);
        publisher_share(run);
    }
    begin(run);
    loop(run);
    report(run);
    run_end(!run->open_count || options->mode == MODE_IDLE);
}
