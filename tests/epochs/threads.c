// Threads come and go, with destructors of their own that run epochs in each of glibc's rounds: memory must
// not grow.
#include "lockwright.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_key_t before, after;

static void epochs(int first)
{
    for (int id = first; id < first + 20; id++) {
        lw_epoch_start(id * 11);
        lw_epoch_start(id);
        lw_epoch_end(id, 1000000);
        lw_epoch_end(id * 11, 1000000);
    }
}

static void destroy_before(void *round)
{
    epochs(60);
    if ((size_t)round < 3)
        pthread_setspecific(before, (void *)((size_t)round + 1));
}

static void destroy_after(void *round)
{
    epochs(40);
    if ((size_t)round < 3)
        pthread_setspecific(after, (void *)((size_t)round + 1));
}

static void *work(void *with_destructors)
{
    epochs(1);
    if (with_destructors) {
        pthread_setspecific(before, (void *)1);
        pthread_setspecific(after, (void *)1);
    }
    lw_epoch_start(3); // left open
    return NULL;
}

static void come_and_go(int count, void *with_destructors)
{
    while (count-- > 0) {
        pthread_t thread[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&thread[i], NULL, work, with_destructors))
                abort();
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
    }
}

static long pages(void)
{
    long size = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &size) != 1)
        abort();
    fclose(file);
    return size;
}

int main(void)
{
    if (pthread_key_create(&before, destroy_before))
        abort();
    epochs(1); // lockwright makes its key between ours
    if (pthread_key_create(&after, destroy_after))
        abort();
    come_and_go(50, NULL);
    come_and_go(50, &before);
    long start = pages();
    come_and_go(1000, NULL);
    come_and_go(1000, &before);
    long grown = pages() - start;
    // 8000 threads; a block for each would be 24000 pages.
    printf("%s\n", grown < 200 ? "no growth" : "growth");
    return grown < 200 ? 0 : 1;
}
