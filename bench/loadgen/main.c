/* Which part of the generator is wanted. */
#include "nats.h"
#include "rocketmq.h"

int main(int argument_count, char **arguments) {
    static struct options options;
    static struct run run;
    static struct nats_run nats;
    static struct rocketmq_run rocketmq;
    parse_options(argument_count, arguments, &options);
    run.options = nats.run.options = rocketmq.run.options = options;
    if (options.mode >= MODE_ROCKETMQ_SEND) rocketmq_execute(&rocketmq);
    else if (options.mode >= MODE_NATS_PUB) nats_execute(&nats);
    else execute(&run);
    return 0;
}
