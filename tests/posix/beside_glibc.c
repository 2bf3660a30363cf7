// glibc's own lock functions, found in libc itself, on a mutex that others lock and unlock by the usual ones; and one locked by the
// former and unlocked by the latter, and the other way round.
// whole: yes
#include "check.h"

enum { THREADS = 9, ROUNDS = 4000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int (*glibcs_lock)(pthread_mutex_t *), (*glibcs_unlock)(pthread_mutex_t *);
static long counter;

/* By turns: ours alone, glibc's alone, mixed. */
static void *counts(void *data)
{
    long which = (long)data % 3;
    for (int i = 0; i < ROUNDS; i++) {
        bool locks = which == 1 || (which == 2 && i & 1), unlocks = which == 1 || (which == 2 && i & 2);
        OK(locks ? glibcs_lock(&mutex) : pthread_mutex_lock(&mutex));
        counter++;
        OK(unlocks ? glibcs_unlock(&mutex) : pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    glibcs_lock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_lock");
    glibcs_unlock = (int (*)(pthread_mutex_t *))dlsym(libc, "pthread_mutex_unlock");
    CHECK(glibcs_lock && glibcs_unlock);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(counts, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    printf("%ld\n", counter);
    CHECK(counter == THREADS * ROUNDS);
    return finish();
}
