/* The PHPMQ half: send without an answer, consume in a window. One connection, blocking: with one thing to do there is nothing to
 * wait for but the server. A message is checked as far as it takes to find the next one; its id is sent back as it came. */
#include "phpmq.h"

#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 8, PACKET_BYTES = 32, ID_BYTES = 32, INPUT_BYTES = 1 << 20, QUEUE_BYTES_MAX = 200, PERIOD = 200 };

struct load {
    bool consumes, ready, follows, complete;
    char host[64];
    uint16_t port;
    const char *queue;
    uint64_t messages, window, size_bytes, lead_max;
    double deadline_s;
    int fd;
    uint64_t done;
};

static uint64_t number(const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || text[0] == '-') fail("%s is no number", text);
    return value;
}

static void parse(int count, char **arguments, struct load *load) {
    load->consumes = !strcmp(arguments[1], "phpmq-consume");
    if (!load->consumes && strcmp(arguments[1], "phpmq-send")) fail("there is no mode %s: phpmq-send or phpmq-consume", arguments[1]);
    for (int i = 2; i < count; i += 2) {
        const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(name, "--ready")) {
            load->ready = true;
            i--; /* it has no value */
        } else if (!strcmp(name, "--address")) {
            const char *colon = strrchr(value, ':');
            if (!colon || (size_t)(colon - value) >= sizeof load->host) fail("%s is not HOST:PORT", value);
            memcpy(load->host, value, (size_t)(colon - value));
            load->port = (uint16_t)number(colon + 1);
        } else if (!strcmp(name, "--topic")) load->queue = value;
        else if (!strcmp(name, "--messages")) load->messages = number(value);
        else if (!strcmp(name, "--lead-max")) load->lead_max = number(value);
        else if (!strcmp(name, "--tell") || !strcmp(name, "--follow")) {
            lead_open(value);
            load->follows = name[2] == 'f';
        } else if (!strcmp(name, "--window")) load->window = number(value);
        else if (!strcmp(name, "--size")) load->size_bytes = number(value);
        else if (!strcmp(name, "--deadline")) load->deadline_s = strtod(value, NULL);
        else fail("there is no option %s", name);
    }
    if (strlen(load->queue) > QUEUE_BYTES_MAX || load->size_bytes > 1 << 20 || !load->messages || !load->window) fail("an option is out of its range");
}

static void open_socket(struct load *load) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(load->port)};
    int yes = 1;
    struct timeval patience = {.tv_sec = (time_t)load->deadline_s + 1};
    if (inet_pton(AF_INET, load->host, &address.sin_addr) != 1) fail("%s is no address", load->host);
    load->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (load->fd < 0 || connect(load->fd, (struct sockaddr *)&address, sizeof address)) fail("connecting: %s", strerror(errno));
    setsockopt(load->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(load->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(load->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

static void write_all(const struct load *load, const char *bytes, size_t size) {
    while (size) {
        ssize_t written = send(load->fd, bytes, size, MSG_NOSIGNAL);
        if (written <= 0) fail("writing: %s", strerror(errno));
        bytes += written;
        size -= (size_t)written;
    }
}

static char *packet(char *at, int type, const void *content, size_t size) {
    at += sprintf(at, "P%02d%029zu", type, size);
    memcpy(at, content, size);
    return at + size;
}

/* The server has read everything when it answers the end of our side by the end of its own. */
static void send_messages(struct load *load, uint64_t until_ns) {
    size_t room = HEAD_BYTES + 3 * PACKET_BYTES + strlen(load->queue) + load->size_bytes + 1;
    char *period = allocate(room * PERIOD), *body = allocate(load->size_bytes + 1), *at = period, end;
    memset(body, 'x', load->size_bytes);
    for (int i = 0; i < PERIOD; i++) {
        memcpy(at, "H0100103", HEAD_BYTES);
        at = packet(packet(packet(at + HEAD_BYTES, 1, load->queue, strlen(load->queue)), 2, body, load->size_bytes), 5, "0", 1);
    }
    size_t each = (size_t)(at - period) / PERIOD;
    while (load->done < load->messages && now_ns() < until_ns) {
        if (load->follows && load->done > lead_heard() + load->lead_max) {
            usleep(FOLLOW_CHECK_MS * 200);
            continue;
        }
        uint64_t count = load->messages - load->done < PERIOD ? load->messages - load->done : PERIOD;
        write_all(load, period, each * count);
        load->done += count;
    }
    load->complete = load->done == load->messages;
    shutdown(load->fd, SHUT_WR);
    if (load->complete && recv(load->fd, &end, 1, 0)) fail("the server has not read everything: %s", strerror(errno));
    free(period);
    free(body);
}

/* The size of the message at `at`, of which `size` bytes are there; 0: not all of it. Gives where its id is. */
static size_t message_size(const char *at, size_t size, const char **id) {
    size_t position = HEAD_BYTES;
    if (size < HEAD_BYTES) return 0;
    if (memcmp(at, "H010030", 7) || (at[7] != '3' && at[7] != '4')) fail("this is no message: %.8s", at);
    for (int left = at[7] - '0'; left; left--) {
        char digits[30] = {0};
        if (size < position + PACKET_BYTES) return 0;
        if (at[position] != 'P') fail("this is no packet: %.8s", at + position);
        memcpy(digits, at + position + 3, 29);
        if (at[position + 2] == '3') *id = at + position + PACKET_BYTES;
        position += PACKET_BYTES + number(digits);
        if (size < position) return 0;
    }
    return position;
}

static void consume(struct load *load, uint64_t until_ns) {
    char *input = allocate(2 * INPUT_BYTES), request[HEAD_BYTES + 2 * PACKET_BYTES + QUEUE_BYTES_MAX + 30], text[24];
    size_t ack_bytes = HEAD_BYTES + 2 * PACKET_BYTES + strlen(load->queue) + ID_BYTES, used = 0;
    char *output = allocate((INPUT_BYTES / (HEAD_BYTES + 3 * PACKET_BYTES) + 1) * 2 * (ack_bytes + 1)), *head = allocate(ack_bytes + 1);
    memcpy(request, "H0100202", HEAD_BYTES);
    char *end = packet(request + HEAD_BYTES, 1, load->queue, strlen(load->queue));
    end = packet(end, 4, text, (size_t)sprintf(text, "%llu", (unsigned long long)load->window));
    write_all(load, request, (size_t)(end - request));
    say_ready(&(struct options){.ready = load->ready});
    memcpy(head, "H0100402", HEAD_BYTES);
    packet(packet(head + HEAD_BYTES, 1, load->queue, strlen(load->queue)), 3, "", 0);
    memcpy(head + ack_bytes - ID_BYTES - 2, "32", 2);
    while (load->done < load->messages) {
        ssize_t got = recv(load->fd, input + used, 2 * INPUT_BYTES - used, 0);
        if (got <= 0) fail("reading: %s", got ? strerror(errno) : "the server closed the connection");
        used += (size_t)got;
        size_t position = 0, size, written = 0;
        const char *id = NULL;
        while (load->done < load->messages && (size = message_size(input + position, used - position, &id))) {
            memcpy(output + written, head, ack_bytes - ID_BYTES);
            memcpy(output + written + ack_bytes - ID_BYTES, id, ID_BYTES);
            written += ack_bytes;
            position += size;
            load->done++;
        }
        memmove(input, input + position, used - position);
        used -= position;
        write_all(load, output, written);
        lead_tell(load->done);
        if (now_ns() > until_ns) break;
    }
    load->complete = load->done == load->messages;
    free(input);
    free(output);
    free(head);
}

int phpmq_main(int argument_count, char **arguments) {
    struct load load = {.host = "127.0.0.1", .port = 9100, .queue = "bench", .messages = 100000, .window = 1000, .size_bytes = 200, .deadline_s = 60};
    struct rusage usage;
    parse(argument_count, arguments, &load);
    open_socket(&load);
    uint64_t started_ns = now_ns(), until_ns = started_ns + (uint64_t)(load.deadline_s * 1e9);
    if (load.consumes) consume(&load, until_ns);
    else send_messages(&load, until_ns);
    uint64_t ended_ns = now_ns();
    double seconds = (double)(ended_ns - started_ns) / 1e9;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"mode\":\"%s\",\"messages\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"slice_rates\":[],\"cpu_seconds\":%.6f,\"began_s\":%.6f,\"ended_s\":%.6f,\"complete\":%s}\n",
           arguments[1], (unsigned long long)load.done, seconds, (double)load.done / seconds, cpu, (double)started_ns / 1e9, (double)ended_ns / 1e9,
           load.complete ? "true" : "false");
    close(load.fd);
    run_end(load.complete);
    return 0;
}
