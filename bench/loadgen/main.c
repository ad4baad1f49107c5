/* Which half of the generator is wanted. */
#include "nats.h"
#include "phpmq.h"

#include <string.h>

int main(int argument_count, char **arguments) {
    static struct nats_run run;
    if (argument_count > 1 && !strncmp(arguments[1], "phpmq-", 6)) return phpmq_main(argument_count, arguments);
    parse_options(argument_count, arguments, &run.run.options);
    if (run.run.options.mode >= MODE_NATS_PUB) nats_execute(&run);
    else execute(&run.run);
    return 0;
}
