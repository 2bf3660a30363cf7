// A process with one thread, then with two, then with one again: the same locks throughout.
// whole: yes
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, across = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static long counter;

static void *count(void *data)
{
    (void)data;
    for (int i = 0; i < 100000; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void all(void)
{
    struct timespec past = in_ms(CLOCK_REALTIME, -10);
    EXPECT(pthread_mutex_lock(&m), 0);
    EXPECT(pthread_mutex_trylock(&m), EBUSY);
    EXPECT(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
    EXPECT(pthread_mutex_unlock(&m), 0);
    EXPECT(pthread_mutex_lock(&r), 0);
    EXPECT(pthread_mutex_lock(&r), 0);
    EXPECT(pthread_mutex_unlock(&r), 0);
    EXPECT(pthread_mutex_unlock(&r), 0);
    EXPECT(pthread_mutex_unlock(&r), EPERM);
}

int main(void)
{
    all();
    count(NULL);
    /* Locked while there is one thread, waited for by a second, unlocked while there are two. */
    OK(pthread_mutex_lock(&across));
    OK(pthread_mutex_lock(&m));
    pthread_t thread = start(count, NULL);
    EXPECT(elsewhere(try_it, &across), EBUSY);
    sleep_ms(20);
    OK(pthread_mutex_unlock(&m));
    count(NULL);
    OK(pthread_mutex_unlock(&across));
    EXPECT(elsewhere(try_it, &across), 0);
    join(thread);
    all();
    count(NULL);
    printf("%ld\n", counter);
    CHECK(counter == 400000);
    return finish();
}
