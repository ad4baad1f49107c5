/* The PHPMQ half has a main and options of its own: phpmq-send, phpmq-consume. */
#ifndef PHPMQ_H
#define PHPMQ_H

int phpmq_main(int argument_count, char **arguments);

#endif
