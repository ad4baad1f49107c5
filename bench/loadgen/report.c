/* The answer: one line of JSON. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static double microseconds_at(const struct run *run, double quantile) {
    uint64_t index = (uint64_t)(quantile * (double)(run->sample_count - 1));
    return (double)run->samples_ns[index] / 1e3;
}

double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Whoever started us may now have others publish. */
void say_ready(const struct options *options) {
    if (!options->ready) return;
    printf("{\"ready\":true}\n");
    fflush(stdout);
}

void report_slices(const struct run *run) {
    double messages = (double)(run->options.messages / SLICE_COUNT);
    printf(",\"slice_rates\":[");
    for (uint32_t i = 0; i < run->slices_done; i++)
        printf("%s%.0f", i ? "," : "", messages / ((double)(run->slice_ns[i + 1] - run->slice_ns[i] + 1) / 1e9));
    printf("]");
}

/* What consumers see: the rate of the first nine tenths. A server may hold back the last messages of a stream to fill
 * its output buffer, which is a delay and says nothing about the rate. */
static void report_steady_rate(const struct run *run) {
    if (run->slices_done < SLICE_COUNT) return;
    double messages = (double)(run->options.messages / SLICE_COUNT * (SLICE_COUNT - 1));
    printf(",\"steady_rate\":%.0f", messages / ((double)(run->slice_ns[SLICE_COUNT - 1] - run->slice_ns[0]) / 1e9));
    /* The first tenth left out as well: there, topics get their first files. */
    messages = (double)(run->options.messages / SLICE_COUNT * (SLICE_COUNT - 2));
    printf(",\"middle_rate\":%.0f", messages / ((double)(run->slice_ns[SLICE_COUNT - 1] - run->slice_ns[1]) / 1e9));
}

static void report_channels(const struct run *run) {
    uint64_t redelivered = 0;
    printf(",\"received\":[");
    for (uint32_t i = 0; i < run->channel_count; i++) {
        if (i < CHANNEL_COUNT_MAX) printf("%s%llu", i ? "," : "", (unsigned long long)run->channels[i].received);
        redelivered += run->channels[i].redelivered;
    }
    printf("],\"redelivered\":%llu", (unsigned long long)redelivered);
}

void report_samples(const struct run *run) {
    qsort(run->samples_ns, run->sample_count, sizeof *run->samples_ns, compare);
    printf(",\"samples\":%llu,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f", (unsigned long long)run->sample_count,
           microseconds_at(run, 0.5), microseconds_at(run, 0.9), microseconds_at(run, 0.99), microseconds_at(run, 0.999), microseconds_at(run, 1.0));
}

void report_begin(const struct run *run, uint64_t done, bool complete) {
    double seconds = (double)(run->ended_ns - run->started_ns) / 1e9;
    printf("{\"mode\":\"%s\",\"complete\":%s,\"messages\":%llu,\"seconds\":%.6f,\"rate\":%.0f,\"cpu_seconds\":%.3f,\"began_s\":%.6f,\"ended_s\":%.6f", run->options.mode_name,
           complete ? "true" : "false", (unsigned long long)done, seconds, (double)done / seconds, cpu_seconds() - run->cpu_before_s,
           (double)run->started_ns / 1e9, (double)run->ended_ns / 1e9);
}

void report(const struct run *run) {
    const struct options *options = &run->options;
    uint64_t done = options->mode == MODE_SUB || options->mode == MODE_BOTH ? run->received : run->published;
    report_begin(run, done, options->mode == MODE_IDLE || !run->open_count);
    if (options->mode != MODE_IDLE && options->mode != MODE_LATENCY) report_slices(run);
    if (options->mode == MODE_SUB || options->mode == MODE_BOTH) report_steady_rate(run);
    if (options->mode == MODE_SUB || options->mode == MODE_BOTH || options->mode == MODE_LATENCY) report_channels(run);
    if (run->sample_count) report_samples(run);
    if (options->mode == MODE_LATENCY) printf(",\"generator_late_us_max\":%.1f", (double)run->late_ns_max / 1e3);
    printf("}\n");
}
