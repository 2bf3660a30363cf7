// Leaves the CPUs alone for 1 ms in every 8, all threads at the same time. Otherwise a scheduler may keep other processes, such as the
// command that the test runs, from a CPU on which our threads wake each other: for 87 s, on Linux 6.18, under glibc's locks.
#include <time.h>

static inline void pause_at_times(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_nsec % 8000000 >= 7000000)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
