/* Waits that never end. `held`: main holds `db`, for which two threads wait, until it exits; two others use `lg`.
 * `dead`: a deadlock, until somebody kills it. `mutex` and `rwlock`: two threads wait for a lock that processes may
 * share, by turns. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t db = PTHREAD_MUTEX_INITIALIZER, lg = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t both;
static pthread_rwlock_t table;
static pthread_barrier_t there;

static void *worker(void *unused)
{
    pthread_mutex_lock(&db);
    pthread_mutex_unlock(&db);
    return unused;
}

static void *logger(void *unused)
{
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lg);
        usleep(100);
        pthread_mutex_unlock(&lg);
        usleep(3000);
    }
    return unused;
}

static void *crossed(void *unused)
{
    pthread_mutex_lock(&lg);
    pthread_barrier_wait(&there);
    pthread_mutex_lock(&db);
    return unused;
}

static void *in_turn(void *mutex)
{
    for (int i = 0; i < 300; i++) {
        if (mutex)
            pthread_mutex_lock(mutex);
        else
            pthread_rwlock_wrlock(&table);
        usleep(5000);
        if (mutex)
            pthread_mutex_unlock(mutex);
        else
            pthread_rwlock_unlock(&table);
    }
    return NULL;
}

static pthread_t start(void *(*run)(void *), void *with)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, with) != 0)
        exit(2);
    return thread;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    printf("%d\n", getpid());
    fflush(stdout);
    if (strcmp(way, "held") == 0) {
        pthread_mutex_lock(&db);
        pthread_t one = start(logger, NULL), other = start(logger, NULL);
        // The first thread that waits makes the memory for the counts. Waits that begin in that moment aren't counted.
        usleep(50000);
        start(worker, NULL);
        start(worker, NULL);
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        sleep(3);
        exit(0);
    }
    if (strcmp(way, "dead") == 0) {
        pthread_barrier_init(&there, NULL, 2);
        pthread_mutex_lock(&db);
        start(crossed, NULL);
        pthread_barrier_wait(&there);
        pthread_mutex_lock(&lg);
        return 1;
    }
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&both, &shared);
    pthread_rwlockattr_t its;
    pthread_rwlockattr_init(&its);
    pthread_rwlockattr_setpshared(&its, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&table, &its);
    void *with = strcmp(way, "mutex") == 0 ? &both : NULL;
    pthread_t one = start(in_turn, with), other = start(in_turn, with);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    return 0;
}
