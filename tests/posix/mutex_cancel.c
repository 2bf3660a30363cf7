/* pthread_mutex_lock isn't a cancellation point, however long it waits and whatever it reads meanwhile; and it leaves
 * errno alone. */
#include "check.h"

enum { THREADS = 4, MINE = 4242 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;
static atomic_int cancelled, changed;

static void end(void *unused)
{
    (void)unused;
    if (!stop)
        cancelled++;
}

static void *contend(void *unused)
{
    pthread_cleanup_push(end, NULL);
    while (!stop) {
        errno = MINE;
        pthread_mutex_lock(&mutex);
        if (errno != MINE)
            changed++;
        for (volatile int i = 0; i < 2000; i++)
            ;
        sched_yield();
        pthread_mutex_unlock(&mutex);
    }
    pthread_cleanup_pop(0);
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, contend, NULL));
    for (int i = 0; i < THREADS - 1; i++)
        OK(pthread_cancel(threads[i]));
    /* The library looks at the machine once a second at most. */
    for (int i = 0; i < 12; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    stop = true;
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    CHECK(cancelled == 0);
    CHECK(changed == 0);
    return failures != 0;
}
