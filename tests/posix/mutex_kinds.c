// Return codes of lock, trylock and unlock, for every kind and every static initialiser.
// whole: yes
#include "check.h"

static pthread_mutex_t static_normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t static_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t static_errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t static_adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

static void *hold_and_exit(void *mutex)
{
    OK(pthread_mutex_lock(mutex));
    return NULL;
}

static void normal(pthread_mutex_t *m)
{
    for (int i = 0; i < 3; i++) {
        EXPECT(pthread_mutex_lock(m), 0);
        EXPECT(pthread_mutex_trylock(m), EBUSY);
        EXPECT(elsewhere(try_it, m), EBUSY);
        EXPECT(pthread_mutex_unlock(m), 0);
        EXPECT(elsewhere(try_it, m), 0);
        EXPECT(pthread_mutex_trylock(m), 0);
        EXPECT(pthread_mutex_trylock(m), EBUSY);
        EXPECT(pthread_mutex_unlock(m), 0);
    }
    /* glibc lets another thread unlock a mutex of this kind; programs rely on it. */
    join(start(hold_and_exit, m));
    EXPECT(pthread_mutex_trylock(m), EBUSY);
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(pthread_mutex_trylock(m), 0);
    EXPECT(pthread_mutex_unlock(m), 0);
}

static void recursive(pthread_mutex_t *m)
{
    EXPECT(pthread_mutex_unlock(m), EPERM);
    for (int i = 0; i < 5; i++)
        EXPECT(i % 2 ? pthread_mutex_trylock(m) : pthread_mutex_lock(m), 0);
    EXPECT(elsewhere(try_it, m), EBUSY);
    EXPECT(elsewhere(unlock_it, m), EPERM);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(elsewhere(try_it, m), EBUSY);
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(elsewhere(try_it, m), 0);
    EXPECT(pthread_mutex_unlock(m), EPERM);
    /* The limit of the depth, without 2^32 calls. */
    EXPECT(pthread_mutex_lock(m), 0);
    m->__data.__count = UINT32_MAX;
    EXPECT(pthread_mutex_lock(m), EAGAIN);
    EXPECT(pthread_mutex_trylock(m), EAGAIN);
    struct timespec soon = in_ms(CLOCK_REALTIME, 1000);
    EXPECT(pthread_mutex_timedlock(m, &soon), EAGAIN);
    m->__data.__count = 1;
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(elsewhere(try_it, m), 0);
}

static void errorcheck(pthread_mutex_t *m)
{
    EXPECT(pthread_mutex_unlock(m), EPERM);
    EXPECT(pthread_mutex_lock(m), 0);
    EXPECT(pthread_mutex_lock(m), EDEADLK);
    EXPECT(pthread_mutex_trylock(m), EBUSY);
    EXPECT(elsewhere(try_it, m), EBUSY);
    EXPECT(elsewhere(unlock_it, m), EPERM);
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(pthread_mutex_unlock(m), EPERM);
    EXPECT(pthread_mutex_trylock(m), 0);
    EXPECT(pthread_mutex_lock(m), EDEADLK);
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(elsewhere(try_it, m), 0);
}

static void with_kind(const char *name, int kind, void (*body)(pthread_mutex_t *))
{
    printf("-- %s\n", name);
    pthread_mutex_t m;
    memset(&m, 0xa5, sizeof m);
    init_kind(&m, kind);
    body(&m);
    EXPECT(pthread_mutex_destroy(&m), 0);
    /* The same memory again. */
    init_kind(&m, kind);
    body(&m);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

int main(void)
{
    with_kind("normal", PTHREAD_MUTEX_NORMAL, normal);
    with_kind("default", PTHREAD_MUTEX_DEFAULT, normal);
    with_kind("timed", PTHREAD_MUTEX_TIMED_NP, normal);
    with_kind("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, normal);
    with_kind("recursive", PTHREAD_MUTEX_RECURSIVE, recursive);
    with_kind("errorcheck", PTHREAD_MUTEX_ERRORCHECK, errorcheck);
    printf("-- static\n");
    normal(&static_normal);
    normal(&static_adaptive);
    recursive(&static_recursive);
    errorcheck(&static_errorcheck);
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    EXPECT(pthread_mutexattr_settype(&attr, 77), EINVAL);
    return finish();
}
