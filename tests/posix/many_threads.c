// More than 2048 threads in the life of a process, and 300 at once, all contend for the same mutex.
// limit: 90
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long counter;
static int arrived;

static void *once(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    counter++;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *together(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    if (++arrived == 300)
        OK(pthread_cond_broadcast(&c));
    while (arrived < 300)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < 100; i++)
        once(NULL);
    return NULL;
}

int main(void)
{
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 64 * 1024));
    for (int round = 0; round < 600; round++) {
        pthread_t threads[5];
        OK(pthread_mutex_lock(&m));
        for (int i = 0; i < 5; i++)
            OK(pthread_create(&threads[i], &attr, once, NULL));
        OK(pthread_mutex_unlock(&m));
        for (int i = 0; i < 5; i++)
            join(threads[i]);
    }
    printf("%ld\n", counter);
    CHECK(counter == 3000);
    static pthread_t threads[300];
    counter = 0;
    for (int i = 0; i < 300; i++)
        OK(pthread_create(&threads[i], &attr, together, NULL));
    for (int i = 0; i < 300; i++)
        join(threads[i]);
    printf("%ld\n", counter);
    CHECK(counter == 30000);
    return finish();
}
