// Epochs of known number, in four threads; argument 1 says how it ends. It prints quartiles of what it measured
// within the epochs and around them, and how many were too slow: what is recorded lies between.
#include "lockwright.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, EACH = 2500, SLO = 50000 };

static unsigned long within[THREADS * EACH], around[THREADS * EACH];

static unsigned long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000UL + at.tv_nsec;
}

static void *work(void *number)
{
    unsigned seed = (unsigned)(size_t)number + 1;

    for (size_t i = 0; i < EACH; i++) {
        seed = seed * 1664525 + 1013904223;
        unsigned long length = 5000 + (seed >> 16); // 5 to 70 us
        size_t at = (size_t)number * EACH + i;
        unsigned long before = now();
        lw_epoch_start(5);
        unsigned long start = now();
        do
            within[at] = now() - start;
        while (within[at] < length);
        lw_epoch_end(5, SLO);
        around[at] = now() - before;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
    return (x > y) - (x < y);
}

static void report(unsigned long *took)
{
    unsigned long slow = 0;

    qsort(took, THREADS * EACH, sizeof *took, compare);
    for (size_t i = 0; i < THREADS * EACH; i++)
        slow += took[i] > SLO;
    printf("%lu %lu %lu %lu\n", took[THREADS * EACH / 4 - 1], took[THREADS * EACH / 2 - 1],
           took[THREADS * EACH * 3 / 4 - 1], slow);
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];

    (void)argc;
    lw_epoch_name(5, "request");
    lw_epoch_percentile(5, 99.9);
    // The clock's rate takes 10 ms to be known; before that epochs are as right, and take longer.
    for (unsigned long start = now(); now() - start < 20000000UL;) {
        lw_epoch_start(6);
        lw_epoch_end(6, 1000);
    }
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)i))
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    report(within);
    report(around);
    fflush(stdout);
    if (!strcmp(argv[1], "kill"))
        raise(SIGKILL);
    if (!strcmp(argv[1], "_exit"))
        _exit(0);
    return 0;
}
