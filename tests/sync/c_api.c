// The C functions one by one, their error numbers, objects in reused memory, and forks.
#define _GNU_SOURCE
#include "lockwright_sync.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int failures;

static void is(int line, const char *call, int got, int wanted)
{
    if (got != wanted) {
        printf("FAILED line %d: %s = %d, not %d\n", line, call, got, wanted);
        failures++;
    }
}
#define IS(call, wanted) is(__LINE__, #call, (call), (wanted))

static struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ms * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static pthread_t start(void *(*body)(void *))
{
    pthread_t thread;
    IS(pthread_create(&thread, NULL, body, NULL), 0);
    return thread;
}

static lw_mutex_t mutex = LW_MUTEX_INIT;
static lw_cond_t cond = LW_COND_INIT;
static lw_rwlock_t rwlock = LW_RWLOCK_INIT;
static long count;
static atomic_int stop;

static void *find_held(void *unused)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 10), odd = {0, 1000000000};
    IS(lw_mutex_trylock(&mutex), EBUSY);
    IS(lw_mutex_timedlock(&mutex, CLOCK_REALTIME, &soon), ETIMEDOUT);
    IS(lw_mutex_timedlock(&mutex, CLOCK_MONOTONIC, &odd), EINVAL);
    IS(lw_mutex_timedlock(&mutex, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    IS(lw_rwlock_tryrdlock(&rwlock), EBUSY);
    IS(lw_rwlock_trywrlock(&rwlock), EBUSY);
    soon = in_ms(CLOCK_MONOTONIC, 10);
    IS(lw_rwlock_timedrdlock(&rwlock, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    IS(lw_rwlock_timedwrlock(&rwlock, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    return unused;
}

static void answers(void)
{
    struct timespec past = {0, 0};
    IS(lw_mutex_lock(&mutex), 0);
    IS(lw_rwlock_wrlock(&rwlock), 0);
    IS(lw_rwlock_rdlock(&rwlock), EDEADLK);
    IS(lw_rwlock_wrlock(&rwlock), EDEADLK);
    pthread_join(start(find_held), NULL);
    IS(lw_mutex_destroy(&mutex), EBUSY);
    IS(lw_cond_timedwait(&cond, &mutex, CLOCK_REALTIME, &past), ETIMEDOUT);
    IS(lw_cond_signal(&cond), 0);
    IS(lw_mutex_unlock(&mutex), 0);
    IS(lw_rwlock_unlock(&rwlock), 0);
    IS(lw_rwlock_rdlock(&rwlock), 0);
    IS(lw_rwlock_tryrdlock(&rwlock), 0);
    IS(lw_rwlock_trywrlock(&rwlock), EBUSY);
    IS(lw_rwlock_unlock(&rwlock), 0);
    IS(lw_rwlock_unlock(&rwlock), 0);
    // A free mutex can be locked even if the deadline has passed.
    IS(lw_mutex_timedlock(&mutex, CLOCK_REALTIME, &past), 0);
    IS(lw_mutex_unlock(&mutex), 0);
}

// A mutex and a condvar in memory of their own, freed as soon as POSIX allows it.
struct Job {
    lw_mutex_t mutex;
    lw_cond_t cond;
    int done;
};

static void *work(void *argument)
{
    struct Job *job = argument;
    lw_mutex_lock(&job->mutex);
    job->done = 1;
    lw_cond_signal(&job->cond);
    lw_mutex_unlock(&job->mutex);
    return NULL;
}

static void jobs(void)
{
    for (int i = 0; i < 500; i++) {
        struct Job *job = malloc(sizeof *job);
        pthread_t thread;
        lw_mutex_init(&job->mutex);
        lw_cond_init(&job->cond);
        job->done = 0;
        IS(pthread_create(&thread, NULL, work, job), 0);
        lw_mutex_lock(&job->mutex);
        while (!job->done)
            IS(lw_cond_wait(&job->cond, &job->mutex), 0);
        lw_mutex_unlock(&job->mutex);
        pthread_join(thread, NULL);
        IS(lw_cond_destroy(&job->cond), 0);
        IS(lw_mutex_destroy(&job->mutex), 0);
        free(job);
    }
}

static void *count_up(void *unused)
{
    while (!stop) {
        lw_mutex_lock(&mutex);
        count++;
        lw_mutex_unlock(&mutex);
    }
    return unused;
}

// In the child only the forking thread exists. A mutex that it holds is still its own, with or without a line of waiters.
static void forks(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(count_up);
    for (int i = 0; i < 30; i++) {
        lw_mutex_lock(&mutex);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            stop = 1;
            lw_mutex_unlock(&mutex);
            pthread_t late = start(count_up);
            for (int j = 0; j < 1000; j++) {
                lw_mutex_lock(&mutex);
                lw_mutex_unlock(&mutex);
            }
            pthread_join(late, NULL);
            _exit(0);
        }
        lw_mutex_unlock(&mutex);
        int status = -1;
        waitpid(child, &status, 0);
        IS(status, 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    IS(count > 0, 1);
}

int main(void)
{
    answers();
    jobs();
    forks();
    printf("%s\n", failures ? "failed" : "done");
    return failures != 0;
}
