// A library whose constructor runs before the preloaded library's: it locks, waits and starts threads.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static long counter;
static bool go;

long early_counter(void);
int early_failures(void);

static void *count(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    while (!go)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < 10000; i++) {
        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_lock(&r));
        OK(pthread_mutex_lock(&r));
        OK(pthread_rwlock_rdlock(&rw));
        counter++;
        OK(pthread_rwlock_unlock(&rw));
        OK(pthread_mutex_unlock(&r));
        OK(pthread_mutex_unlock(&r));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_unlock(&m));
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    OK(pthread_mutex_lock(&m));
    CHECK(pthread_cond_timedwait(&c, &m, &soon) == ETIMEDOUT);
    OK(pthread_mutex_unlock(&m));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(count, NULL);
    OK(pthread_mutex_lock(&m));
    go = true;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < 3; i++)
        join(threads[i]);
}

__attribute__((destructor)) static void end(void)
{
    OK(pthread_mutex_lock(&m));
    counter = 0;
    OK(pthread_mutex_unlock(&m));
}

long early_counter(void)
{
    OK(pthread_mutex_lock(&m));
    long now = counter;
    OK(pthread_mutex_unlock(&m));
    return now;
}

int early_failures(void) { return failures; }
