// A mutex that was handed from waiter to waiter is destroyed and initialised anew by its last holder, at the same address.
// Either glibc's own code has unlocked it before; or it is still held, which POSIX leaves undefined and glibc's locks stand.
// Nobody hangs in the new mutex.
#include "check.h"
#include <dlfcn.h>
#include <stdatomic.h>

enum { ROUNDS = 100 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int (*glibcs_unlock)(pthread_mutex_t *);
static atomic_int asked, queued, served;

static void rest(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void work(int turns)
{
    for (volatile int i = 0; i < turns; i++)
        ;
}

/* Waits first, and hands the mutex on. */
static void *first(void *unused)
{
    for (int round = 1; round <= ROUNDS; round++) {
        while (asked < round)
            rest(2000);
        OK(pthread_mutex_lock(&mutex));
        work(3000);
        OK(pthread_mutex_unlock(&mutex));
        queued = round;
    }
    return unused;
}

/* Waits behind the first, and is the last to hold the mutex. */
static void *last(void *unused)
{
    for (int round = 1; round <= ROUNDS; round++) {
        while (asked < round)
            rest(2000);
        work(100000);
        OK(pthread_mutex_lock(&mutex));
        if (queued < round) {
            OK(pthread_mutex_unlock(&mutex));
            while (queued < round)
                rest(2000);
            OK(pthread_mutex_lock(&mutex));
        }
        if (round % 2)
            glibcs_unlock(&mutex);
        pthread_mutex_destroy(&mutex);
        OK(pthread_mutex_init(&mutex, NULL));
        OK(pthread_mutex_lock(&mutex));
        OK(pthread_mutex_unlock(&mutex));
        served = round;
    }
    return unused;
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_NOW);
    glibcs_unlock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_unlock");
    CHECK(glibcs_unlock != NULL);
    pthread_t threads[] = {start(first, NULL), start(last, NULL)};
    for (int round = 1; round <= ROUNDS; round++) {
        OK(pthread_mutex_lock(&mutex));
        asked = round;
        rest(300000); // by then, both are usually in line
        OK(pthread_mutex_unlock(&mutex));
        while (served < round)
            rest(2000);
    }
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    printf("%d rounds\n", ROUNDS);
    return finish();
}
