/* The answer of the RocketMQ part: the same line of JSON; without the warm-up, the processor time too. */
#include "rocketmq.h"

#include <stdio.h>

void rocketmq_report(const struct rocketmq_run *rocketmq, bool complete) {
    const struct run *run = &rocketmq->run;
    report_begin(run, rocketmq->done - rocketmq->warmed, complete);
    printf(",\"requests\":%llu", (unsigned long long)(rocketmq->answered - rocketmq->answered_before));
    if (rocketmq->pulled) printf(",\"pulled\":%llu,\"pulled_bytes\":%llu", (unsigned long long)(rocketmq->pulled - rocketmq->pulled_before), (unsigned long long)rocketmq->pulled_bytes);
    report_slices(run);
    if (run->sample_count) report_samples(run);
    printf("}\n");
}
