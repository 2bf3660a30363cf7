// Threads that end: while they hold a mutex, in destructors that lock, detached, in great number, and while others
// wait for what they hold.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static long destroyed;
static _Atomic int ended, waiting;

static void destructor(void *data)
{
    (void)data;
    for (int i = 0; i < 20; i++) {
        OK(pthread_mutex_lock(&m));
        destroyed++;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
    }
    ended++;
}

static void *short_life(void *data)
{
    OK(pthread_setspecific(key, &key));
    OK(pthread_mutex_lock(&m));
    destroyed++;
    OK(pthread_mutex_unlock(&m));
    if (data)
        pthread_exit(data);
    return NULL;
}

static void *exit_holding(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&held));
    while (waiting < 3)
        sched_yield();
    sleep_ms(5);
    pthread_exit(NULL);
}

static void *wait_for_held(void *data)
{
    (void)data;
    waiting++;
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_unlock(&held));
    return NULL;
}

int main(void)
{
    OK(pthread_key_create(&key, destructor));
    for (int round = 0; round < 30; round++) {
        pthread_t threads[10];
        for (int i = 0; i < 10; i++)
            threads[i] = start(short_life, i % 2 ? &key : NULL);
        for (int i = 0; i < 10; i++) {
            if (i % 5)
                join(threads[i]);
            else
                OK(pthread_detach(threads[i]));
        }
    }
    UNTIL(ended == 300);
    OK(pthread_mutex_lock(&m));
    printf("%ld\n", destroyed);
    CHECK(destroyed == 300 * 21);
    OK(pthread_mutex_unlock(&m));

    /* A normal mutex whose holder is gone: any thread may unlock it, and the waiters go on. */
    for (int round = 0; round < 20; round++) {
        waiting = 0;
        pthread_t holder = start(exit_holding, NULL), waiters[3];
        for (int i = 0; i < 3; i++)
            waiters[i] = start(wait_for_held, NULL);
        join(holder);
        CHECK(pthread_mutex_trylock(&held) == EBUSY);
        OK(pthread_mutex_unlock(&held));
        for (int i = 0; i < 3; i++)
            join(waiters[i]);
    }
    EXPECT(pthread_mutex_destroy(&held), 0);
    return finish();
}
