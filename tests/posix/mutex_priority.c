// Priority inheritance and protection are glibc's business: the same return codes, and mutual exclusion.
#include "check.h"

static pthread_mutex_t m;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long counter;
static int state;

static void *count(void *data)
{
    (void)data;
    for (int i = 0; i < 5000; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *wait_for_it(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    state = 1;
    OK(pthread_cond_signal(&c));
    while (state != 2)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void inherit(const char *name, int kind)
{
    printf("-- %s\n", name);
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, kind));
    EXPECT(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT), 0);
    EXPECT(pthread_mutex_init(&m, &attr), 0);
    EXPECT(pthread_mutex_lock(&m), 0);
    printf("again = %s\n", error_name(pthread_mutex_trylock(&m)));
    EXPECT(elsewhere(try_it, &m), EBUSY);
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    if (kind == PTHREAD_MUTEX_NORMAL)
        printf("timed = %s\n", error_name(pthread_mutex_timedlock(&m, &soon)));
    EXPECT(pthread_mutex_unlock(&m), 0);
    if (kind == PTHREAD_MUTEX_RECURSIVE)
        EXPECT(pthread_mutex_unlock(&m), 0);
    counter = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(count, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter == 20000);
    state = 0;
    pthread_t waiter = start(wait_for_it, NULL);
    OK(pthread_mutex_lock(&m));
    while (state != 1)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    EXPECT(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_lock(&m));
    state = 2;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    join(waiter);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

/* Whether it can be locked depends on the privilege to raise a priority; either way, the result is glibc's. */
static void protect(const char *name, int kind)
{
    printf("-- %s\n", name);
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, kind));
    EXPECT(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT), 0);
    EXPECT(pthread_mutex_init(&m, &attr), 0);
    int code = pthread_mutex_lock(&m), ceiling;
    printf("lock = %s\n", error_name(code));
    if (code == 0) {
        int again = pthread_mutex_trylock(&m);
        printf("again = %s\n", error_name(again));
        OK(pthread_mutex_getprioceiling(&m, &ceiling));
        printf("ceiling %d\n", ceiling);
        if (again == 0)
            EXPECT(pthread_mutex_unlock(&m), 0);
        EXPECT(pthread_mutex_unlock(&m), 0);
    }
    EXPECT(pthread_mutex_destroy(&m), 0);
}

int main(void)
{
    inherit("inherit normal", PTHREAD_MUTEX_NORMAL);
    inherit("inherit recursive", PTHREAD_MUTEX_RECURSIVE);
    inherit("inherit errorcheck", PTHREAD_MUTEX_ERRORCHECK);
    protect("protect normal", PTHREAD_MUTEX_NORMAL);
    protect("protect recursive", PTHREAD_MUTEX_RECURSIVE);
    protect("protect errorcheck", PTHREAD_MUTEX_ERRORCHECK);
    return finish();
}
