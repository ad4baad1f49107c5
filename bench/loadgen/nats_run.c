/* The modes of the NATS half: which connections there are, the loop, and the look at what came too much. */
#include "nats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static void add_connections(struct nats_run *nats, enum nats_role role, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct nats_connection *connection = &nats->connections[nats->connection_count++];
        connection->role = role;
        connection->index = i;
        if (role != NATS_SLOW && role != NATS_IDLE) nats->run.open_count++;
        if (role == NATS_PUBLISHER || role == NATS_REQUESTER) nats->waiting++;
    }
}

/* A taker for each subscriber, one for the whole group, one for each slow subscriber. */
static void add_takers(struct nats_run *nats) {
    struct nats_taker *taker = nats->takers, *group = NULL;
    for (uint32_t i = 0; i < nats->connection_count; i++) {
        struct nats_connection *connection = &nats->connections[i];
        if (connection->role != NATS_SUBSCRIBER && connection->role != NATS_MEMBER && connection->role != NATS_SLOW) continue;
        if (connection->role == NATS_MEMBER && group) {
            connection->taker = group;
            continue;
        }
        connection->taker = taker++;
        connection->taker->slow = connection->role == NATS_SLOW;
        if (!connection->taker->slow) nats->waiting++;
        if (connection->role == NATS_MEMBER) group = connection->taker;
    }
    nats->taker_count = (uint32_t)(taker - nats->takers);
}

/* Those who receive come first: they are subscribed before anything is published. */
static void plan_connections(struct nats_run *nats) {
    const struct options *options = &nats->run.options;
    bool takes = options->mode == MODE_NATS_BOTH || options->mode == MODE_NATS_SUB;
    size_t slots = (size_t)options->connections * options->topics;
    size_t room = (size_t)options->connections + options->subscribers + options->members + options->slow + 2;
    nats->connections = calloc(room, sizeof *nats->connections);
    nats->takers = calloc(room, sizeof *nats->takers);
    nats->first_bits = calloc(slots, sizeof *nats->first_bits);
    if (!nats->connections || !nats->takers || !nats->first_bits) fail("no memory for %zu connections", room);
    if (takes) {
        add_connections(nats, NATS_SUBSCRIBER, options->subscribers);
        add_connections(nats, NATS_MEMBER, options->members);
        add_connections(nats, NATS_SLOW, options->slow);
        add_takers(nats);
        for (size_t slot = 1; slot < slots; slot++)
            nats->first_bits[slot] = nats->first_bits[slot - 1] + nats_quota(options, (uint32_t)((slot - 1) / options->topics), (uint32_t)((slot - 1) % options->topics));
    }
    if (options->mode == MODE_NATS_BOTH || options->mode == MODE_NATS_PUB) add_connections(nats, NATS_PUBLISHER, options->connections);
    if (options->mode == MODE_NATS_REQUEST) {
        add_connections(nats, NATS_RESPONDER, 1);
        add_connections(nats, NATS_REQUESTER, 1);
    }
    if (options->mode == MODE_NATS_IDLE) add_connections(nats, NATS_IDLE, options->connections);
}

static void open_connection(struct nats_run *nats, struct nats_connection *connection) {
    const struct options *options = &nats->run.options;
    char line[256];
    bool receives = connection->taker || connection->role == NATS_RESPONDER;
    const char *host = receives && options->other_port ? options->other_host : options->host;
    nats_open(connection, options, host, receives && options->other_port ? options->other_port : options->port);
    if (connection->taker || connection->role == NATS_IDLE) nats_subscribe(connection, options);
    if (connection->taker) nats_consumer_prepare(nats, connection);
    if (connection->role == NATS_PUBLISHER) nats_publisher_prepare(nats, connection);
    if (connection->role == NATS_RESPONDER) nats_command(connection, line, (size_t)snprintf(line, sizeof line, "SUB %s 1\r\n", options->topic));
    if (connection->role == NATS_REQUESTER) nats_command(connection, "SUB _INBOX.loadgen.* 1\r\n", 24);
    nats_settle(connection);
}

static void open_connections(struct nats_run *nats) {
    struct run *run = &nats->run;
    for (uint32_t i = 0; i < nats->connection_count; i++) {
        struct nats_connection *connection = &nats->connections[i];
        open_connection(nats, connection);
        if (now_ns() > run->deadline_ns) fail("the deadline came while connecting (%u of %u)", i, nats->connection_count);
        if (connection->role == NATS_SLOW) continue;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, connection->base.fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    }
    /* What one server of a cluster has been told, the others know a little later. */
    struct timespec pause = {.tv_sec = run->options.settle_ms / 1000, .tv_nsec = (long)(run->options.settle_ms % 1000) * 1000000L};
    while (nanosleep(&pause, &pause) && errno == EINTR) continue;
}

/* A publisher, a taker or the requester has all it wanted. The last one ends the run; only a look is left at what came too
 * much: all that the server has sent us until now is here before its answer to a PING. */
void nats_one_less(struct nats_run *nats) {
    if (--nats->waiting) return;
    nats->run.ended_ns = now_ns();
    nats->checking = true;
    for (uint32_t i = 0; i < nats->connection_count; i++) {
        struct nats_connection *connection = &nats->connections[i];
        if (connection->role == NATS_REQUESTER || connection->role == NATS_RESPONDER) finish_connection(&nats->run, &connection->base);
        if (connection->role != NATS_SUBSCRIBER && connection->role != NATS_MEMBER) continue;
        memcpy(reserve_output(&connection->base, 6), "PING\r\n", 6);
        flush_output(&connection->base);
        watch_output(&nats->run, &connection->base, output_waits(&connection->base));
    }
}

static void sit_idle(struct nats_run *nats, struct nats_connection *connection) {
    struct nats_operation operation;
    size_t position = 0;
    if (!nats_receive(connection)) return;
    while (nats_next(connection, &position, &operation)) {
        if (operation.verb == NATS_PING) nats_answer_ping(nats, connection);
        else if (operation.verb != NATS_INFO) nats_unexpected(&operation);
    }
    drop_input(&connection->base, position);
}

static void handle(struct nats_run *nats, struct nats_connection *connection, uint32_t events) {
    if (connection->base.done) return;
    if (connection->role == NATS_PUBLISHER) {
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) nats_publisher_receive(nats, connection);
        nats_publisher_push(nats, connection);
        return;
    }
    flush_output(&connection->base);
    watch_output(&nats->run, &connection->base, output_waits(&connection->base));
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    switch (connection->role) {
    case NATS_SUBSCRIBER:
    case NATS_MEMBER: nats_consumer_receive(nats, connection); break;
    case NATS_REQUESTER: nats_requester_receive(nats, connection); break;
    case NATS_RESPONDER: nats_responder_receive(nats, connection); break;
    case NATS_IDLE: sit_idle(nats, connection); break;
    case NATS_PUBLISHER:
    case NATS_SLOW: break;
    }
}

static void push_publishers(struct nats_run *nats) {
    for (uint32_t i = 0; i < nats->connection_count; i++)
        if (nats->connections[i].role == NATS_PUBLISHER) nats_publisher_push(nats, &nats->connections[i]);
}

static void begin(struct nats_run *nats) {
    struct run *run = &nats->run;
    run->started_ns = run->slice_ns[0] = now_ns();
    say_ready(&run->options);
    push_publishers(nats);
    for (uint32_t i = 0; i < nats->connection_count; i++) {
        struct nats_connection *connection = &nats->connections[i];
        if (connection->role == NATS_REQUESTER) nats_ask(nats, connection);
        if (connection->early && connection->role != NATS_SLOW) handle(nats, connection, EPOLLIN);
    }
    if (run->options.mode != MODE_NATS_IDLE) return;
    /* Whoever started us looks at the server from now on. */
    printf("{\"ready\":true,\"connections\":%u}\n", nats->connection_count);
    fflush(stdout);
}

static void loop(struct nats_run *nats) {
    struct run *run = &nats->run;
    struct epoll_event events[EVENT_COUNT];
    while (run->open_count || run->options.mode == MODE_NATS_IDLE) {
        int count = epoll_wait(run->epoll_fd, events, EVENT_COUNT, run->options.follow ? FOLLOW_CHECK_MS : DEADLINE_CHECK_MS);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) handle(nats, events[i].data.ptr, events[i].events);
        /* A publisher that waited for the subscribers is not woken by its own socket. */
        if (run->options.lead_max) push_publishers(nats);
        if (now_ns() > run->deadline_ns) break;
    }
    if (!nats->checking) run->ended_ns = now_ns();
}

void nats_execute(struct nats_run *nats) {
    struct run *run = &nats->run;
    run_prepare(run);
    plan_connections(nats);
    open_connections(nats);
    begin(nats);
    loop(nats);
    for (uint32_t i = 0; i < nats->connection_count && !run->open_count; i++)
        if (nats->connections[i].role == NATS_SLOW) nats_slow_drain(nats, &nats->connections[i]);
    nats_report(nats);
    run_end(run->options.mode == MODE_NATS_IDLE || !run->open_count);
}
