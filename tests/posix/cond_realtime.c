// A broadcast moves many waiters to the mutex. Real-time threads sleep there too, in timed locks, and are served first:
// each waiter must still get its wake-up.
#include "check.h"
#include <sched.h>

enum { WAITERS = 24, ROUNDS = 800, URGENT = 2 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t start_round = PTHREAD_COND_INITIALIZER, end_round = PTHREAD_COND_INITIALIZER;
static long round_number, inside;
static int arrived;
static atomic_bool done;

static void *waiter(void *data)
{
    (void)data;
    for (long seen = 0; seen < ROUNDS; seen++) {
        OK(pthread_mutex_lock(&m));
        if (++arrived == WAITERS)
            OK(pthread_cond_signal(&end_round));
        while (round_number == seen)
            OK(pthread_cond_wait(&start_round, &m));
        inside++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *urgent(void *data)
{
    /* Without the privilege, an ordinary thread will do. */
    struct sched_param how = {.sched_priority = 10 + (int)(intptr_t)data};
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &how);
    while (!done) {
        struct timespec late = in_ms(CLOCK_REALTIME, 30000);
        OK(pthread_mutex_timedlock(&m, &late));
        inside++;
        inside--;
        OK(pthread_mutex_unlock(&m));
        /* Far longer than a call takes: else these two keep both CPUs, and the others wait for them alone. */
        struct timespec pause = {0, 20000 * (1 + (intptr_t)data)};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t waiters[WAITERS], others[URGENT];
    for (intptr_t i = 0; i < URGENT; i++)
        others[i] = start(urgent, (void *)i);
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = start(waiter, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        while (arrived < WAITERS)
            OK(pthread_cond_wait(&end_round, &m));
        arrived = 0;
        round_number++;
        OK(pthread_cond_broadcast(&start_round));
        OK(pthread_mutex_unlock(&m));
    }
    for (int i = 0; i < WAITERS; i++)
        join(waiters[i]);
    done = true;
    for (int i = 0; i < URGENT; i++)
        join(others[i]);
    printf("%ld\n", inside);
    CHECK(inside == (long)WAITERS * ROUNDS);
    return finish();
}
