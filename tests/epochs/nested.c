// An outer epoch with a tighter SLO than its inner one, one that nothing can satisfy, and an easy one.
#include "lockwright.h"

#include <time.h>

enum { OUTER = 1, INNER = 2, INFEASIBLE = 3, EASY = 4 };

static void work(long us)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < us * 1000);
}

int main(void)
{
    for (int i = 0; i < 300; i++) {
        lw_epoch_start(OUTER);
        lw_epoch_start(INNER);
        work(100);
        lw_epoch_end(INNER, 60000000000);
        lw_epoch_end(OUTER, 1000);
        lw_epoch_start(INFEASIBLE);
        work(30);
        lw_epoch_end(INFEASIBLE, 20000);
        lw_epoch_start(EASY);
        work(1);
        lw_epoch_end(EASY, 10000000000);
    }
    return 0;
}
