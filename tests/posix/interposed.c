// counted: yes
// A library or the program itself may define functions that a wait calls, and lock a mutex there, as libfaketime does. A wait
// that called them would lead to another wait, without end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6, TURNS = 3000, PASSES = 60 };

static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER, outer = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long calls, held, turn;

/* libc's own. May be asked for before `main`. */
static long (*kernel(void))(long, ...)
{
    static long (*known)(long, ...);
    if (known == NULL)
        *(void **)&known = dlsym(RTLD_NEXT, "syscall");
    return known;
}

/* Its own work is long enough that threads meet there. */
static void enter(void)
{
    pthread_mutex_lock(&inner);
    calls++;
    for (volatile int i = 0; i < 50; i++)
        ;
    pthread_mutex_unlock(&inner);
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
    enter();
    return (int)kernel()(SYS_clock_gettime, clock, to);
}

int sched_yield(void)
{
    enter();
    return (int)kernel()(SYS_sched_yield);
}

long syscall(long number, ...)
{
    enter();
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    return kernel()(number, a, b, c, d, e, f);
}

static void *work(void *at)
{
    struct timespec now;
    for (int i = 0; i < TURNS; i++) {
        pthread_mutex_lock(&outer);
        held++;
        for (volatile int j = 0; j < 200; j++)
            ;
        pthread_mutex_unlock(&outer);
        if (i % 4 == 0)
            clock_gettime(CLOCK_REALTIME, &now);
        if (i % 64 == 0)
            sched_yield();
        if (i % 2 == 0)
            pthread_rwlock_wrlock(&rwlock);
        else
            pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
    }
    for (int i = 0; i < PASSES; i++) {
        pthread_mutex_lock(&outer);
        while (turn % THREADS != (long)at)
            pthread_cond_wait(&cond, &outer);
        turn++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&outer);
        clock_gettime(CLOCK_REALTIME, &now);
        now.tv_nsec = 0; /* past */
        if (pthread_mutex_timedlock(&outer, &now) == 0)
            pthread_mutex_unlock(&outer);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld %s\n", held, turn, calls > THREADS * TURNS / 4 ? "interposed" : "not called");
    return 0;
}
