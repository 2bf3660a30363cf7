// Signals while threads wait: handlers run, waits go on, sem_post from a handler works, and timed waits don't end
// early.
#include "check.h"
#include <semaphore.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static _Atomic long handled;
static _Atomic int done;
static long counter;
static int token;
static sem_t sem;

static void handler(int signal)
{
    (void)signal;
    handled++;
    sem_post(&sem);
}

/* Threads that begin with this can't end before `pester` has sent each of them its first signal. */
static void enter(void)
{
    OK(pthread_mutex_lock(&gate));
    OK(pthread_mutex_unlock(&gate));
}

static void *lock_much(void *data)
{
    (void)data;
    enter();
    for (int i = 0; i < 40000; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
    done++;
    return NULL;
}

static void *wait_long(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    while (!token)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    done++;
    return NULL;
}

static void *lock_once(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_unlock(&m));
    done++;
    return NULL;
}

static void *timed(void *data)
{
    (void)data;
    enter();
    struct timespec soon = in_ms(CLOCK_REALTIME, 200);
    int code = pthread_mutex_timedlock(&m, &soon);
    CHECK(code == ETIMEDOUT && has_passed(CLOCK_REALTIME, soon));
    done++;
    return NULL;
}

static void *timed_cond(void *data)
{
    (void)data;
    enter();
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    OK(pthread_mutex_lock(&own));
    struct timespec soon = in_ms(CLOCK_REALTIME, 200);
    int code;
    /* glibc doesn't return early for a signal. A program must put up with it, but should rarely see it. */
    while ((code = pthread_cond_timedwait(&cond, &own, &soon)) == 0)
        ;
    CHECK(code == ETIMEDOUT && has_passed(CLOCK_REALTIME, soon));
    OK(pthread_mutex_unlock(&own));
    done++;
    return NULL;
}

/* Sends signals until all threads are done. The caller holds the gate. */
static void pester(pthread_t *threads, int count)
{
    long before = handled;
    for (int i = 0; i < count; i++)
        OK(pthread_kill(threads[i], SIGUSR1));
    OK(pthread_mutex_unlock(&gate));
    while (done < count) {
        for (int i = 0; i < count; i++)
            pthread_kill(threads[i], SIGUSR1);
        usleep(300);
    }
    for (int i = 0; i < count; i++)
        join(threads[i]);
    CHECK(handled - before >= count);
    done = 0;
}

int main(void)
{
    OK(sem_init(&sem, 0, 0));
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
        OK(sigaction(SIGUSR1, &action, NULL));
        pthread_t threads[4];
        counter = 0;
        OK(pthread_mutex_lock(&gate));
        for (int i = 0; i < 4; i++)
            threads[i] = start(lock_much, NULL);
        pester(threads, 4);
        CHECK(counter == 160000);

        token = 0;
        for (int i = 0; i < 4; i++)
            threads[i] = start(wait_long, NULL);
        for (int turn = 0; turn < 200; turn++) {
            for (int i = 0; i < 4; i++)
                OK(pthread_kill(threads[i], SIGUSR1));
            usleep(300);
        }
        CHECK(done == 0);
        OK(pthread_mutex_lock(&m));
        token = 4;
        OK(pthread_cond_broadcast(&c));
        OK(pthread_mutex_unlock(&m));
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        done = 0;

        OK(pthread_mutex_lock(&m));
        for (int i = 0; i < 4; i++)
            threads[i] = start(lock_once, NULL);
        for (int turn = 0; turn < 200; turn++) {
            for (int i = 0; i < 4; i++)
                OK(pthread_kill(threads[i], SIGUSR1));
            usleep(300);
        }
        CHECK(done == 0);
        OK(pthread_mutex_unlock(&m));
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        done = 0;

        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_lock(&gate));
        for (int i = 0; i < 2; i++)
            threads[i] = start(timed, NULL);
        for (int i = 2; i < 4; i++)
            threads[i] = start(timed_cond, NULL);
        pester(threads, 4);
        OK(pthread_mutex_unlock(&m));
    }
    int posts;
    OK(sem_getvalue(&sem, &posts));
    CHECK(posts == handled);
    return finish();
}
