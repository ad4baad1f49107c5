/* The answer of the NATS half: the same line of JSON, with what each taker got. */
#include "nats.h"

#include <stdio.h>

static void report_takers(const struct nats_run *nats) {
    uint32_t listed = 0, ended = 0;
    for (int slow = 0; slow < 2; slow++) {
        printf(slow ? "],\"slow_received\":[" : ",\"received\":[");
        for (uint32_t i = listed = 0; i < nats->taker_count; i++)
            if (nats->takers[i].slow == slow) printf("%s%llu", listed++ ? "," : "", (unsigned long long)nats->takers[i].received);
    }
    for (uint32_t i = 0; i < nats->connection_count; i++) ended += nats->connections[i].closed;
    printf("],\"slow_ended\":%u", ended);
}

/* How a queue group's messages were shared out: each member's part. */
static void report_members(const struct nats_run *nats) {
    printf(",\"members\":[");
    for (uint32_t i = 0; i < nats->connection_count; i++)
        if (nats->connections[i].role == NATS_MEMBER) printf("%s%llu", nats->connections[i].index ? "," : "", (unsigned long long)nats->connections[i].got);
    printf("]");
}

void nats_report(const struct nats_run *nats) {
    const struct run *run = &nats->run;
    bool idle = run->options.mode == MODE_NATS_IDLE;
    report_begin(run, nats->taker_count ? run->received : run->published, idle || !run->open_count);
    if (!idle) report_slices(run);
    if (nats->taker_count) report_takers(nats);
    if (nats->run.options.members) report_members(nats);
    if (run->sample_count) report_samples(run);
    printf("}\n");
}
