// What gdb reads: __owner names the holder (is_owner) while the mutex is locked, and is 0 otherwise. __kind stays, except
// for the bit PTHREAD_MUTEX_NO_ELISION_NP, which means nothing on a machine without elision: textbook locks mark their
// mutexes with it.
// whole: yes
// limit: 240
#include "check.h"

static pthread_mutex_t m;
static int kind;

static void *look(void *data)
{
    (void)data;
    for (int i = 0; i < 3000; i++) {
        OK(pthread_mutex_lock(&m));
        CHECK(is_owner(&m));
        CHECK((m.__data.__kind & 0xff) == kind);
        CHECK(m.__data.__lock != 0);
        if (i % 3 == 0)
            sched_yield();
        CHECK(is_owner(&m));
        OK(pthread_mutex_unlock(&m));
        if (pthread_mutex_trylock(&m) == 0) {
            CHECK(is_owner(&m));
            OK(pthread_mutex_unlock(&m));
        }
        struct timespec soon = in_ms(CLOCK_REALTIME, 60000);
        OK(pthread_mutex_timedlock(&m, &soon));
        CHECK(is_owner(&m));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int k = 0; k < 4; k++) {
        kind = kinds[k];
        init_kind(&m, kind);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(look, NULL);
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        CHECK(m.__data.__owner == 0);
        CHECK(m.__data.__lock == 0);
        CHECK((m.__data.__nusers & 0xffff) == 0);
        printf("kind %#x: owner %d lock %d\n", m.__data.__kind & ~0x200, m.__data.__owner,
               m.__data.__lock);
        OK(pthread_mutex_destroy(&m));
    }
    return finish();
}
