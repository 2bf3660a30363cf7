// Threads take turns by a mutex and a condvar each, with timed and untimed waits.
#include "check.h"

#define THREADS 4
#define ROUNDS 1000

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c[THREADS] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
                                    PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;
static long counter;

static void *play(void *data)
{
    int me = (int)(intptr_t)data, next = (me + 1) % THREADS;
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        while (turn != me) {
            if (i % 3) {
                OK(pthread_cond_wait(&c[me], &m));
            } else {
                struct timespec late = in_ms(CLOCK_MONOTONIC, 100000);
                OK(pthread_cond_clockwait(&c[me], &m, CLOCK_MONOTONIC, &late));
            }
        }
        turn = next;
        counter++;
        if (i % 2)
            OK(pthread_cond_signal(&c[next]));
        else
            OK(pthread_cond_broadcast(&c[next]));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        threads[i] = start(play, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    printf("counter %ld\n", counter);
    return finish();
}
