/* Which half of the generator is wanted. */
#include "nats.h"

int main(int argument_count, char **arguments) {
    static struct nats_run run;
    parse_options(argument_count, arguments, &run.run.options);
    if (run.run.options.mode >= MODE_NATS_PUB) nats_execute(&run);
    else execute(&run.run);
    return 0;
}
