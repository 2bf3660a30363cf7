/* Every kind of lock, used as it should be: no tool has anything to say of it. With `race` as its argument there is a
 * race, which a tool should find. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 200 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;

static long by_mutex, by_recursive, by_try, by_time, by_rwlock, by_spin, racy;
static long turn, taken;
static int races;

static struct timespec soon(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_sec += 100;
    return at;
}

static void must(int answer)
{
    if (answer != 0) {
        printf("answer %d\n", answer);
        exit(3);
    }
}

static void *work(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        must(pthread_mutex_lock(&mutex));
        by_mutex++;
        must(pthread_mutex_unlock(&mutex));

        must(pthread_mutex_lock(&recursive));
        must(pthread_mutex_lock(&recursive));
        by_recursive++;
        must(pthread_mutex_unlock(&recursive));
        must(pthread_mutex_unlock(&recursive));

        if (pthread_mutex_trylock(&mutex) == 0) {
            by_try++;
            must(pthread_mutex_unlock(&mutex));
        }

        struct timespec until = soon(CLOCK_REALTIME);
        must(pthread_mutex_timedlock(&mutex, &until));
        by_time++;
        must(pthread_mutex_unlock(&mutex));

        must(pthread_rwlock_rdlock(&rwlock));
        if (by_rwlock < 0)
            abort();
        must(pthread_rwlock_unlock(&rwlock));
        must(pthread_rwlock_wrlock(&rwlock));
        by_rwlock++;
        must(pthread_rwlock_unlock(&rwlock));

        must(pthread_spin_lock(&spin));
        by_spin++;
        must(pthread_spin_unlock(&spin));

        if (races)
            racy++;
    }

    int first = pthread_barrier_wait(&barrier);
    if (first != 0 && first != PTHREAD_BARRIER_SERIAL_THREAD)
        must(first);

    /* One after the other. */
    for (int i = 0; i < 10; i++) {
        must(pthread_mutex_lock(&mutex));
        while (turn % THREADS != me) {
            if (i % 2) {
                must(pthread_cond_wait(&changed, &mutex));
            } else {
                struct timespec until = soon(CLOCK_REALTIME);
                must(pthread_cond_timedwait(&changed, &mutex, &until));
            }
        }
        turn++;
        taken++;
        must(pthread_cond_broadcast(&changed));
        must(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

int main(int count, char **arguments)
{
    races = count > 1 && strcmp(arguments[1], "race") == 0;
    pthread_mutexattr_t attributes;
    must(pthread_mutexattr_init(&attributes));
    must(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
    must(pthread_mutex_init(&recursive, &attributes));
    must(pthread_mutexattr_destroy(&attributes));
    must(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    must(pthread_barrier_init(&barrier, NULL, THREADS));

    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL));

    printf("%ld %ld %ld %ld %ld %ld\n", by_mutex, by_recursive, by_time, by_rwlock, by_spin, taken);
    must(pthread_mutex_destroy(&mutex));
    must(pthread_mutex_destroy(&recursive));
    must(pthread_cond_destroy(&changed));
    must(pthread_rwlock_destroy(&rwlock));
    must(pthread_spin_destroy(&spin));
    must(pthread_barrier_destroy(&barrier));
    return by_try < 0;
}
