// An unused mutex is copied bytewise to another place after it was contended: POSIX leaves this undefined, but programs
// do it, and it works with glibc. Also: memory that held a contended mutex is used again without destroy.
#include "check.h"

static pthread_mutex_t *m;
static long counter;

static void *count(void *data)
{
    (void)data;
    for (int i = 0; i < 5000; i++) {
        OK(pthread_mutex_lock(m));
        counter++;
        if (i % 100 == 0)
            sched_yield();
        OK(pthread_mutex_unlock(m));
    }
    return NULL;
}

static void contend(void)
{
    counter = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(count, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter == 20000);
}

struct pair {
    pthread_mutex_t *mutex;
    long count;
};

static void *count_own(void *data)
{
    struct pair *pair = data;
    for (int i = 0; i < 20000; i++) {
        OK(pthread_mutex_lock(pair->mutex));
        pair->count++;
        OK(pthread_mutex_unlock(pair->mutex));
    }
    return NULL;
}

int main(void)
{
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int k = 0; k < 3; k++) {
        pthread_mutex_t *old = malloc(sizeof *old), *copy = malloc(sizeof *copy);
        init_kind(old, kinds[k]);
        m = old;
        contend();
        memcpy(copy, old, sizeof *old);
        /* Both are in use at the same time; then the first one is gone. */
        struct pair pairs[2] = {{old, 0}, {copy, 0}};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(count_own, &pairs[i % 2]);
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        CHECK(pairs[0].count == 40000 && pairs[1].count == 40000);
        memset(old, 0xff, sizeof *old);
        free(old);
        m = copy;
        contend();
        /* The same memory, initialised anew without destroy. */
        init_kind(copy, kinds[(k + 1) % 3]);
        contend();
        memset(copy, 0, sizeof *copy);
        contend();
        EXPECT(pthread_mutex_destroy(copy), 0);
        free(copy);
    }
    return finish();
}
