// Two threads take turns, by a mutex and two condvars.
#include "check.h"

#define ROUNDS 3000

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;
static long counter;

static void *play(void *data)
{
    int me = (int)(intptr_t)data;
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        while (turn != me)
            OK(pthread_cond_wait(&c[me], &m));
        turn = !me;
        counter++;
        if (i % 2)
            OK(pthread_cond_signal(&c[!me]));
        else
            OK(pthread_cond_broadcast(&c[!me]));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    pthread_t one = start(play, (void *)0), two = start(play, (void *)1);
    join(one);
    join(two);
    printf("counter %ld\n", counter);
    return finish();
}
