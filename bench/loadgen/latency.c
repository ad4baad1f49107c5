/* Latency: messages leave at fixed times, whatever the answers do, with a time in the body.
 *
 * The time is that of the sending; how late the generator itself was is reported apart. Only while the server does not
 * take bytes it is the time at which the message was due, so that a stalled server cannot hide the wait.
 */
#include "loadgen.h"

#include <string.h>

enum { BURST_MAX = 64 };

/* Publish what is due. */
void timed_tick(struct run *run, struct connection *connection) {
    uint64_t interval_ns = 1000000000ULL / run->options.rate;
    size_t head_bytes = 5 + strlen(run->options.topic);
    flush_output(connection);
    if (output_waits(connection)) return;
    for (int burst = 0; burst < BURST_MAX && run->timed_sent < run->options.messages; burst++) {
        uint64_t due = run->started_ns + run->timed_sent * interval_ns, now = now_ns();
        if (now < due) {
            connection->blocked = false;
            return;
        }
        uint64_t stamp = connection->blocked ? due : now;
        if (!connection->blocked && now - due > run->late_ns_max) run->late_ns_max = now - due;
        uint8_t *at = reserve_output(connection, head_bytes + 4 + run->options.size_bytes);
        memcpy(at, "PUB ", 4);
        memcpy(at + 4, run->options.topic, head_bytes - 5);
        at[head_bytes - 1] = '\n';
        put_u32(at + head_bytes, run->options.size_bytes);
        memset(at + head_bytes + 4, 'x', run->options.size_bytes);
        memcpy(at + head_bytes + 4, &stamp, sizeof stamp);
        run->timed_sent++;
        flush_output(connection);
        watch_output(run, connection, output_waits(connection));
        if (output_waits(connection)) {
            connection->blocked = true;
            return;
        }
    }
}

void timed_receive(struct run *run, struct connection *connection) {
    struct frame frame;
    while (run->published < run->options.messages && connection_receive(connection)) {
        size_t position = 0;
        while (next_frame(connection, &position, &frame)) {
            if (is_response(&frame, "_heartbeat_")) continue; /* the next PUB answers it */
            if (!is_response(&frame, "OK")) unexpected_frame(&frame);
            run->published++;
        }
        drop_input(connection, position);
    }
    if (run->published == run->options.messages) finish_connection(run, connection);
}
