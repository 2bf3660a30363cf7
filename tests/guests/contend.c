/* Four threads contend for a lock for as many tenths of a second as the argument says. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;
static long held;

static void *contend(void *unused)
{
    while (!stop) {
        pthread_mutex_lock(&mutex);
        held++;
        for (volatile int i = 0; i < 2000; i++)
            ;
        sched_yield();
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, contend, NULL) != 0)
            return 3;
    for (int i = count > 1 ? atoi(arguments[1]) : 1; i > 0; i--)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    puts(held > 0 ? "done" : "nothing done");
    return 0;
}
