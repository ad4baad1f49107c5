/* What can be asked of the generator, and the limits of each question. */
#include "loadgen.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: loadgen MODE [--name value ...]\n"
    "\n"
    "modes\n"
    "  pub       publish one message per command (PUB, or DPUB with --defer-ms), up to --window commands unanswered\n"
    "  mpub      publish --batch messages per command (MPUB)\n"
    "  prefill   the same as mpub; the name for filling topics before a measurement\n"
    "  sub       receive --messages on each of --channels channels and settle each (FIN)\n"
    "  both      mpub (with --batch 1: pub) and sub at once; with --topics the commands go to each in turn\n"
    "  latency   publish --rate messages a second, receive them, and time publish to receive\n"
    "  idle      open connections, subscribe them (unless --channel ''), and stay until the deadline\n"
    "\n"
    "modes of NATS, where --topic and --topics are subjects (with --topics N: NAME.00000 ...)\n"
    "  nats-pub      publish without taking anything; the server has taken everything when it answers the last PING\n"
    "  nats-both     publish to the subjects in turn; each of --subscribers and each group gets every message once, in order\n"
    "  nats-sub      receive --messages that somebody else publishes, with each of --subscribers\n"
    "  nats-request  one question at a time to one responder\n"
    "  nats-idle     open connections with --subscriptions each, say so, and stay until the deadline\n"
    "\n"
    "modes of RocketMQ, where --address is a nameserver's, and the topic is made with --queues queues if there is none\n"
    "  rocketmq-send      one message per request; --connections with --window requests under way each; the queues take turns\n"
    "  rocketmq-batch     the same with --batch messages per request\n"
    "  rocketmq-pull      pull the first --queues queues from their beginning, 32 at a time, one request under way for each\n"
    "  rocketmq-anywhere  --messages pulls of 32, each from somewhere in one of the queues\n"
    "\n"
    "modes of PHPMQ, where --topic is the queue (options: --address, --topic, --messages, --size, --window, --deadline, --ready, --tell, --follow, --lead-max)\n"
    "  phpmq-send     send without an answer; the server has read everything when it ends the connection\n"
    "  phpmq-consume  receive in a window of --window, and acknowledge each\n"
    "\n"
    "options (default)\n"
    "  --address HOST:PORT (127.0.0.1:4150)   --topic NAME (bench)     --channel NAME (bench)\n"
    "  --messages N (100000)  per channel     --size BYTES (200)       --batch N (200)\n"
    "  --connections N (1)                    --consumers N (1)        --channels N (1)\n"
    "  --window N (4)                         --rdy N (2500)           --topics N (1)\n"
    "  --subscribers N (0)  RDY 0 while publishing                     --rate N (2000)\n"
    "  --defer-ms N (0)                       --message-timeout-ms N (server's)\n"
    "  --lead-max N (0: none)                 --hold-first             --deadline SECONDS (60)\n"
    "  --compression snappy|deflate           --auth SECRET            --words  bodies that compress\n"
    "  --tell FILE  write into it what has been received; --follow FILE  publish no more than --lead-max ahead of that\n"
    "  --ready  say so in a line of its own when those who receive are there\n"
    "options of NATS (default)\n"
    "  --members N (0)  of a queue group      --queue NAME (workers)   --slow N (0)  read nothing until the others are through\n"
    "  --wildcard  one subscription to all    --subscriptions N (1)    --settle-ms N (0)  between subscribing and publishing\n"
    "  --other-address HOST:PORT  the server of those who receive\n"
    "options of RocketMQ (default)\n"
    "  --queues N (4)  --group NAME (bench)   --warm-up N (0)  messages before the clock starts\n"
    "  --binary  headers in RocketMQ's own form instead of JSON\n"
    "  --foreign  pull what others publish meanwhile, of any protocol, until there are --messages\n"
    "\n"
    "One line of JSON goes to standard output. Exit status: 0 done, 1 wrong use, 2 error, 3 deadline.\n"
    "\n"
    "  loadgen mpub --connections 2 --batch 200 --size 200 --messages 5000000 --subscribers 1\n"
    "  loadgen sub --rdy 2500 --messages 5000000\n"
    "  loadgen nats-both --address 127.0.0.1:4222 --size 16 --messages 5000000 --subscribers 4 --topics 100\n"
    "  loadgen rocketmq-send --address 127.0.0.1:9876 --size 128 --messages 200000 --connections 8 --window 1 --warm-up 20000\n";

enum option_code {
    OPTION_ADDRESS = 256, OPTION_TOPIC, OPTION_CHANNEL, OPTION_MESSAGES, OPTION_SIZE, OPTION_BATCH,
    OPTION_CONNECTIONS, OPTION_CONSUMERS, OPTION_CHANNELS, OPTION_WINDOW, OPTION_RDY, OPTION_TOPICS,
    OPTION_SUBSCRIBERS, OPTION_RATE, OPTION_DEFER, OPTION_TIMEOUT, OPTION_LEAD, OPTION_HOLD, OPTION_DEADLINE,
    OPTION_COMPRESSION, OPTION_AUTH, OPTION_WORDS, OPTION_QUEUE, OPTION_MEMBERS, OPTION_SLOW, OPTION_SUBSCRIPTIONS, OPTION_WILDCARD, OPTION_SETTLE,
    OPTION_OTHER, OPTION_QUEUES, OPTION_GROUP, OPTION_WARM_UP, OPTION_BINARY, OPTION_FOREIGN, OPTION_READY, OPTION_TELL, OPTION_FOLLOW, OPTION_HELP
};

static const struct option OPTIONS[] = {
    {"address", required_argument, NULL, OPTION_ADDRESS},
    {"topic", required_argument, NULL, OPTION_TOPIC},
    {"channel", required_argument, NULL, OPTION_CHANNEL},
    {"messages", required_argument, NULL, OPTION_MESSAGES},
    {"size", required_argument, NULL, OPTION_SIZE},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"consumers", required_argument, NULL, OPTION_CONSUMERS},
    {"channels", required_argument, NULL, OPTION_CHANNELS},
    {"window", required_argument, NULL, OPTION_WINDOW},
    {"rdy", required_argument, NULL, OPTION_RDY},
    {"topics", required_argument, NULL, OPTION_TOPICS},
    {"subscribers", required_argument, NULL, OPTION_SUBSCRIBERS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"defer-ms", required_argument, NULL, OPTION_DEFER},
    {"message-timeout-ms", required_argument, NULL, OPTION_TIMEOUT},
    {"lead-max", required_argument, NULL, OPTION_LEAD},
    {"hold-first", no_argument, NULL, OPTION_HOLD},
    {"deadline", required_argument, NULL, OPTION_DEADLINE},
    {"compression", required_argument, NULL, OPTION_COMPRESSION},
    {"auth", required_argument, NULL, OPTION_AUTH},
    {"words", no_argument, NULL, OPTION_WORDS},
    {"queue", required_argument, NULL, OPTION_QUEUE},
    {"members", required_argument, NULL, OPTION_MEMBERS},
    {"slow", required_argument, NULL, OPTION_SLOW},
    {"subscriptions", required_argument, NULL, OPTION_SUBSCRIPTIONS},
    {"wildcard", no_argument, NULL, OPTION_WILDCARD},
    {"settle-ms", required_argument, NULL, OPTION_SETTLE},
    {"other-address", required_argument, NULL, OPTION_OTHER},
    {"queues", required_argument, NULL, OPTION_QUEUES},
    {"group", required_argument, NULL, OPTION_GROUP},
    {"warm-up", required_argument, NULL, OPTION_WARM_UP},
    {"binary", no_argument, NULL, OPTION_BINARY},
    {"foreign", no_argument, NULL, OPTION_FOREIGN},
    {"ready", no_argument, NULL, OPTION_READY},
    {"tell", required_argument, NULL, OPTION_TELL},
    {"follow", required_argument, NULL, OPTION_FOLLOW},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static _Noreturn void misuse(const char *problem, const char *value) {
    fprintf(stderr, "loadgen: %s: %s\n\n%s", problem, value, USAGE);
    exit(1);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || text[0] == '-' || value < least || value > most) misuse("number out of range", text);
    return value;
}

static enum mode parse_mode(const char *name) {
    static const struct { const char *name; enum mode mode; } MODES[] = {
        {"pub", MODE_PUB}, {"mpub", MODE_MPUB}, {"prefill", MODE_MPUB}, {"sub", MODE_SUB},
        {"both", MODE_BOTH}, {"latency", MODE_LATENCY}, {"idle", MODE_IDLE},
        {"nats-pub", MODE_NATS_PUB}, {"nats-both", MODE_NATS_BOTH}, {"nats-sub", MODE_NATS_SUB},
        {"nats-request", MODE_NATS_REQUEST}, {"nats-idle", MODE_NATS_IDLE},
        {"rocketmq-send", MODE_ROCKETMQ_SEND}, {"rocketmq-batch", MODE_ROCKETMQ_BATCH},
        {"rocketmq-pull", MODE_ROCKETMQ_PULL}, {"rocketmq-anywhere", MODE_ROCKETMQ_ANYWHERE},
    };
    for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++)
        if (!strcmp(MODES[i].name, name)) return MODES[i].mode;
    misuse("unknown mode", name);
}

static void parse_address(const char *text, char *host, uint16_t *port) {
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof ((struct options *)0)->host) misuse("address is not HOST:PORT", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    *port = (uint16_t)number(colon + 1, 1, 65535);
}

/* A word that can stand in a command. */
static const char *word(const char *text, size_t size_max) {
    size_t size = strlen(text);
    if (!size || size > size_max || strpbrk(text, " \t\r\n\"\\")) misuse("not a word", text);
    return text;
}

static enum compression parse_compression(const char *name) {
    if (!strcmp(name, "snappy")) return SNAPPY;
    if (!strcmp(name, "deflate")) return DEFLATE;
    misuse("unknown compression", name);
}

static void set_option(int code, const char *value, struct options *options) {
    switch (code) {
    case OPTION_ADDRESS: parse_address(value, options->host, &options->port); break;
    case OPTION_TOPIC: options->topic = value; break;
    case OPTION_CHANNEL: options->channel = value; break;
    case OPTION_MESSAGES: options->messages = number(value, 1, 10000000000ULL); break;
    case OPTION_SIZE: options->size_bytes = (uint32_t)number(value, 8, 1048576); break;
    case OPTION_BATCH: options->batch = (uint32_t)number(value, 1, 20000); break;
    case OPTION_CONNECTIONS: options->connections = (uint32_t)number(value, 1, 50000); break;
    case OPTION_CONSUMERS: options->consumers = (uint32_t)number(value, 1, 1000); break;
    case OPTION_CHANNELS: options->channels = (uint32_t)number(value, 1, CHANNEL_COUNT_MAX); break;
    case OPTION_WINDOW: options->window = (uint32_t)number(value, 1, 100000); break;
    case OPTION_RDY: options->rdy = (uint32_t)number(value, 0, 100000); break;
    case OPTION_TOPICS: options->topics = (uint32_t)number(value, 1, 100000); break;
    case OPTION_SUBSCRIBERS: options->subscribers = (uint32_t)number(value, 0, 1000); break;
    case OPTION_RATE: options->rate = (uint32_t)number(value, 1, 1000000); break;
    case OPTION_DEFER: options->defer_ms = (uint32_t)number(value, 0, 3600000); break;
    case OPTION_TIMEOUT: options->message_timeout_ms = (uint32_t)number(value, 1000, 900000); break;
    case OPTION_LEAD: options->lead_max = number(value, 0, 10000000000ULL); break;
    case OPTION_HOLD: options->hold_first = true; break;
    case OPTION_DEADLINE: options->deadline_s = strtod(value, NULL); break;
    case OPTION_COMPRESSION: options->compression = parse_compression(value); break;
    case OPTION_AUTH: options->auth = value; break;
    case OPTION_WORDS: options->words = true; break;
    case OPTION_QUEUE: options->queue = word(value, 60); break;
    case OPTION_MEMBERS: options->members = (uint32_t)number(value, 0, 1000); break;
    case OPTION_SLOW: options->slow = (uint32_t)number(value, 0, 1000); break;
    case OPTION_SUBSCRIPTIONS: options->subscriptions = (uint32_t)number(value, 1, 10000000); break;
    case OPTION_WILDCARD: options->wildcard = true; break;
    case OPTION_SETTLE: options->settle_ms = (uint32_t)number(value, 0, 60000); break;
    case OPTION_OTHER: parse_address(value, options->other_host, &options->other_port); break;
    case OPTION_QUEUES: options->queues = (uint32_t)number(value, 1, 64); break;
    case OPTION_GROUP: options->group = word(value, 60); break;
    case OPTION_WARM_UP: options->warm_up = number(value, 0, 10000000000ULL); break;
    case OPTION_BINARY: options->binary = true; break;
    case OPTION_FOREIGN: options->foreign = true; break;
    case OPTION_READY: options->ready = true; break;
    case OPTION_TELL: lead_open(value); break;
    case OPTION_FOLLOW: lead_open(value); options->follow = true; break;
    case OPTION_HELP: fputs(USAGE, stdout); exit(0);
    default: misuse("unknown option", "see below");
    }
}

static void check_nats(const struct options *options) {
    bool takes = options->mode == MODE_NATS_BOTH || options->mode == MODE_NATS_SUB;
    word(options->topic, 60);
    if (options->auth) word(options->auth, 500);
    if (options->size_bytes < 12) misuse("--size", "at least 12: a body begins with its number and its publisher");
    if (options->mode == MODE_NATS_SUB && (options->members || options->slow)) misuse("nats-sub", "only --subscribers");
    if (takes && !options->subscribers && !options->members) misuse("nats-both, nats-sub", "somebody has to receive: --subscribers or --members");
    if (!takes && (options->subscribers || options->members || options->slow || (options->lead_max && !options->follow)))
        misuse("--subscribers, --members, --slow, --lead-max", "only for nats-both and nats-sub");
    if (options->topics > 1 && options->mode != MODE_NATS_PUB && !takes) misuse("--topics", "only for nats-pub, nats-both and nats-sub");
    if (options->messages < options->connections && options->mode != MODE_NATS_IDLE) misuse("--messages", "less than one for each publisher");
}

static void check_rocketmq(const struct options *options) {
    bool batches = options->mode == MODE_ROCKETMQ_BATCH;
    word(options->topic, 60);
    if (options->size_bytes < 12) misuse("--size", "at least 12: a body begins with the number of its message");
    if (options->foreign && options->mode != MODE_ROCKETMQ_PULL) misuse("--foreign", "only for rocketmq-pull");
    if (options->foreign && options->warm_up) misuse("--warm-up", "not with --foreign");
    if (batches && (options->messages % options->batch || options->warm_up % options->batch)) misuse("--messages, --warm-up", "not a multiple of --batch");
    if (batches && (uint64_t)options->batch * (options->size_bytes + 100u) > 4 << 20) misuse("--batch", "over the 4 MiB of a body");
    if (options->mode == MODE_ROCKETMQ_PULL && options->connections > options->queues) misuse("--connections", "more than there are queues");
}

static void check(const struct options *options) {
    if (!(options->deadline_s > 0 && options->deadline_s <= 86400)) misuse("--deadline", "not within 0 to 86400");
    if (options->mode >= MODE_ROCKETMQ_SEND) {
        check_rocketmq(options);
        return;
    }
    if (options->mode >= MODE_NATS_PUB) {
        check_nats(options);
        return;
    }
    bool batches = options->mode == MODE_MPUB || options->mode == MODE_BOTH;
    if (batches && options->messages % options->batch) misuse("--messages", "not a multiple of --batch");
    if (options->mode == MODE_MPUB && options->defer_ms) misuse("--defer-ms", "NSQ defers single messages only; use pub");
    if (batches && 4 + (uint64_t)options->batch * (4 + options->size_bytes) > 5242880) misuse("--batch", "over the 5 MiB of a body");
    if (options->topics > 1 && (options->mode == MODE_SUB || options->mode == MODE_LATENCY))
        misuse("--topics", "only for pub, prefill, both and idle");
    if (options->topics > 1 && options->mode == MODE_BOTH) {
        /* Each publisher goes round the topics, so that every channel gets the same. */
        if (options->messages % ((uint64_t)options->topics * options->batch * options->connections))
            misuse("--messages", "not a multiple of topics x batch x connections");
        if (options->hold_first) misuse("--hold-first", "only with one topic");
    }
}

void parse_options(int argument_count, char **arguments, struct options *options) {
    if (argument_count < 2) misuse("no mode", "name one");
    if (!strcmp(arguments[1], "--help")) {
        fputs(USAGE, stdout);
        exit(0);
    }
    *options = (struct options){
        .mode = parse_mode(arguments[1]), .mode_name = arguments[1], .host = "127.0.0.1", .port = 4150,
        .topic = "bench", .channel = "bench", .messages = 100000, .size_bytes = 200, .batch = 200, .connections = 1,
        .consumers = 1, .window = 4, .rdy = 2500, .channels = 1, .topics = 1, .rate = 2000, .deadline_s = 60, .queue = "workers", .subscriptions = 1,
        .group = "bench", .queues = 4,
    };
    if (options->mode == MODE_IDLE) options->rdy = 0;
    int code;
    while ((code = getopt_long(argument_count - 1, arguments + 1, "", OPTIONS, NULL)) != -1)
        set_option(code, optarg, options);
    if (optind < argument_count - 1) misuse("not an option", arguments[1 + optind]);
    check(options);
}
