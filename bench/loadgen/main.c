/* Which part of the generator is wanted. */
#include "nats.h"
#include "phpmq.h"
#include "rocketmq.h"

#include <string.h>

int main(int argument_count, char **arguments) {
    static struct options options;
    static struct run run;
    static struct nats_run nats;
    static struct rocketmq_run rocketmq;
    if (argument_count > 1 && !strncmp(arguments[1], "phpmq-", 6)) return phpmq_main(argument_count, arguments);
    parse_options(argument_count, arguments, &options);
    run.options = nats.run.options = rocketmq.run.options = options;
    if (options.mode >= MODE_ROCKETMQ_SEND) rocketmq_execute(&rocketmq);
    else if (options.mode >= MODE_NATS_PUB) nats_execute(&nats);
    else execute(&run);
    return 0;
}
