// destroy: EBUSY while locked or while a waiter of a condition variable is bound to the mutex.
#include "check.h"

static pthread_mutex_t m;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int state;

static void *waiter(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    state = 1;
    while (state != 2)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void one_kind(const char *name, int kind)
{
    printf("-- %s\n", name);
    state = 0;
    init_kind(&m, kind);
    OK(pthread_mutex_lock(&m));
    EXPECT(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));

    pthread_t thread = start(waiter, NULL);
    for (bool waits = false; !waits;) {
        OK(pthread_mutex_lock(&m));
        waits = state == 1;
        OK(pthread_mutex_unlock(&m));
        sched_yield();
    }
    EXPECT(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_lock(&m));
    EXPECT(pthread_mutex_destroy(&m), EBUSY);
    state = 2;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    join(thread);
    EXPECT(pthread_mutex_destroy(&m), 0);
    /* glibc marks a destroyed mutex, so that a program that uses it anyway gets an error. */
    EXPECT(pthread_mutex_lock(&m), EINVAL);
    EXPECT(pthread_mutex_trylock(&m), EINVAL);
}

int main(void)
{
    one_kind("normal", PTHREAD_MUTEX_NORMAL);
    one_kind("recursive", PTHREAD_MUTEX_RECURSIVE);
    one_kind("errorcheck", PTHREAD_MUTEX_ERRORCHECK);
    one_kind("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP);
    EXPECT(pthread_cond_destroy(&c), 0);
    return finish();
}
