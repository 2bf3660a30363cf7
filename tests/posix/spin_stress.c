// Spin locks: codes, 8 threads on few CPUs, and a lock that glibc's own code shares.
// counted: yes
#include "check.h"

enum { THREADS = 8, TURNS = 4000 };

static pthread_spinlock_t lock;
static long count, tried;
static atomic_int inside;

typedef int operation(pthread_spinlock_t *);
static operation *take, *try, *release;

static void *mixed(void *data)
{
    bool glibcs = (intptr_t)data & 1 && take;
    for (int turn = 0; turn < TURNS; turn++) {
        bool trying = turn % 4 == 0;
        int code = trying ? (glibcs ? try : pthread_spin_trylock)(&lock)
                          : (glibcs ? take : pthread_spin_lock)(&lock);
        if (code == EBUSY && trying)
            continue;
        OK(code);
        CHECK(inside++ == 0);
        count++;
        tried += trying;
        if (turn % 64 == 0)
            sched_yield();
        inside--;
        OK((glibcs ? release : pthread_spin_unlock)(&lock));
    }
    return NULL;
}

static void exclusion(void)
{
    count = tried = 0;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        threads[i] = start(mixed, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    CHECK(count - tried == THREADS * (TURNS - TURNS / 4L));
    printf("counted\n");
}

int main(void)
{
    for (int shared = 0; shared < 2; shared++) {
        EXPECT(pthread_spin_init(&lock, shared), 0);
        EXPECT(pthread_spin_lock(&lock), 0);
        EXPECT(pthread_spin_trylock(&lock), EBUSY);
        EXPECT(pthread_spin_unlock(&lock), 0);
        EXPECT(pthread_spin_trylock(&lock), 0);
        EXPECT(pthread_spin_unlock(&lock), 0);
    }
    exclusion();

    /* Half the threads use glibc's own functions, past any preloaded library. */
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    CHECK(libc != NULL);
    take = (operation *)dlsym(libc, "pthread_spin_lock");
    try = (operation *)dlsym(libc, "pthread_spin_trylock");
    release = (operation *)dlsym(libc, "pthread_spin_unlock");
    CHECK(take && try && release);
    exclusion();
    EXPECT(pthread_spin_destroy(&lock), 0);
    return finish();
}
