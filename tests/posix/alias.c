// The old names with two underscores lead to the same locks, mixed with the usual ones.
#include "check.h"

/* Only old programs have references to these names: they carry the version. */
#ifdef __x86_64__
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif
#define OLD_NAME(ours, theirs)                             \
    extern int ours(pthread_mutex_t *);                    \
    __asm__(".symver " #ours "," #theirs "@" OLD)
OLD_NAME(old_lock, __pthread_mutex_lock);
OLD_NAME(old_unlock, __pthread_mutex_unlock);
OLD_NAME(old_trylock, __pthread_mutex_trylock);
OLD_NAME(old_destroy, __pthread_mutex_destroy);

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void *mixed(void *data)
{
    (void)data;
    for (int i = 0; i < 20000; i++) {
        OK((i % 2 ? old_lock : pthread_mutex_lock)(&m));
        counter++;
        OK((i % 3 ? old_unlock : pthread_mutex_unlock)(&m));
    }
    return NULL;
}

int main(void)
{
    EXPECT(old_lock(&m), 0);
    EXPECT(old_trylock(&m), EBUSY);
    EXPECT(pthread_mutex_trylock(&m), EBUSY);
    EXPECT(old_unlock(&m), 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(mixed, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    printf("%ld\n", counter);
    CHECK(counter == 80000);
    EXPECT(old_destroy(&m), 0);
    return finish();
}
