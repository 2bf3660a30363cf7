// The old names with two underscores lead to the same locks, mixed with the usual ones.
#include "check.h"

typedef int call_t(pthread_mutex_t *);
static call_t *lock, *unlock, *trylock;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long counter;

/* Old programs name these with their version; new ones can't link with them. */
static call_t *find(const char *name)
{
#ifdef __x86_64__
    return (call_t *)dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");
#else
    return (call_t *)dlvsym(RTLD_DEFAULT, name, "GLIBC_2.17");
#endif
}

static void *mixed(void *data)
{
    (void)data;
    for (int i = 0; i < 20000; i++) {
        OK((i % 2 ? lock : pthread_mutex_lock)(&m));
        counter++;
        OK((i % 3 ? unlock : pthread_mutex_unlock)(&m));
    }
    return NULL;
}

int main(void)
{
    lock = find("__pthread_mutex_lock");
    unlock = find("__pthread_mutex_unlock");
    trylock = find("__pthread_mutex_trylock");
    call_t *init = find("__pthread_mutex_init");
    call_t *destroy = find("__pthread_mutex_destroy");
    CHECK(lock && unlock && trylock && init && destroy);
    if (failures)
        return finish();
    EXPECT(lock(&m), 0);
    EXPECT(trylock(&m), EBUSY);
    EXPECT(pthread_mutex_trylock(&m), EBUSY);
    EXPECT(unlock(&m), 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(mixed, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    printf("%ld\n", counter);
    CHECK(counter == 80000);
    EXPECT(destroy(&m), 0);
    return finish();
}
