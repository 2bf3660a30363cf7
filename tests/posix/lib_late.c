// A library that is opened while the program runs, with locks in its own memory.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long counter;
static int turn;

int late_run(void);

static void *count(void *data)
{
    int me = (int)(intptr_t)data;
    for (int i = 0; i < 2000; i++) {
        OK(pthread_mutex_lock(&m));
        while (turn != me)
            OK(pthread_cond_wait(&c, &m));
        turn = !me;
        counter++;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        if (pthread_mutex_trylock(&m) == 0)
            OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int late_run(void)
{
    pthread_t one = start(count, (void *)0), two = start(count, (void *)1);
    join(one);
    join(two);
    CHECK(counter % 4000 == 0);
    return failures;
}

__attribute__((destructor)) static void gone(void)
{
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_destroy(&m));
}
