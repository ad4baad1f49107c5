/* How far a process that publishes is ahead of another one that consumes: a number in a file that both have mapped. */
#include "loadgen.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *told;

/* Both open the same file of at least eight bytes, which are 0 at first. */
void lead_open(const char *path) {
    int fd = open(path, O_RDWR);
    if (fd < 0) fail("%s: %s", path, strerror(errno));
    void *mapped = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) fail("%s: %s", path, strerror(errno));
    told = mapped;
    close(fd);
}

void lead_tell(uint64_t received) {
    if (told) __atomic_store_n(told, received, __ATOMIC_RELAXED);
}

uint64_t lead_heard(void) { return told ? __atomic_load_n(told, __ATOMIC_RELAXED) : 0; }
