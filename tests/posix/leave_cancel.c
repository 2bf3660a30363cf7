// Threads are cancelled asynchronously while they wait for a mutex. They end at once, as with glibc, and the mutex is free afterwards.
// whole: yes
// whole says: has left a textbook lock's queue
// limit: 300
#include "check.h"

enum { THREADS = 4, ROUNDS = 10 };

static pthread_mutex_t mutex;
static atomic_int about_to;

static void *waits(void *data)
{
    int old;
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    about_to++;
    pthread_mutex_lock(&mutex);
    CHECK(!"cancelled");
    return data;
}

static void *counts(void *data)
{
    about_to++;
    OK(pthread_mutex_lock(&mutex));
    ++*(int *)data;
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* Does a cancelled thread end while we still hold the mutex? */
static bool goes_at_once(void)
{
    OK(pthread_mutex_init(&mutex, NULL));
    OK(pthread_mutex_lock(&mutex));
    about_to = 0;
    pthread_t thread = start(waits, NULL);
    UNTIL(about_to == 1);
    OK(pthread_cancel(thread));
    struct timespec patience = in_ms(CLOCK_REALTIME, 5000);
    bool gone = pthread_timedjoin_np(thread, NULL, &patience) == 0;
    OK(pthread_mutex_unlock(&mutex));
    if (!gone)
        CHECK(join(thread) == PTHREAD_CANCELED);
    CHECK(elsewhere(try_it, &mutex) == 0);
    return gone;
}

int main(void)
{
    bool at_once = goes_at_once();
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int kind = 0; kind < 3; kind++) {
        init_kind(&mutex, kinds[kind]);
        for (int round = 0; round < ROUNDS; round++) {
            pthread_t cancelled[THREADS], others[THREADS];
            int count = 0;
            about_to = 0;
            OK(pthread_mutex_lock(&mutex));
            for (int i = 0; i < THREADS; i++) {
                cancelled[i] = start(waits, NULL);
                others[i] = start(counts, &count);
            }
            UNTIL(about_to == 2 * THREADS);
            if (round % 3)
                sleep_ms(round % 3);
            for (int i = 0; i < THREADS; i++)
                OK(pthread_cancel(cancelled[i]));
            for (int i = 0; i < THREADS && at_once; i++)
                CHECK(join(cancelled[i]) == PTHREAD_CANCELED);
            CHECK(count == 0);
            OK(pthread_mutex_unlock(&mutex));
            for (int i = 0; i < THREADS && !at_once; i++)
                CHECK(join(cancelled[i]) == PTHREAD_CANCELED);
            for (int i = 0; i < THREADS; i++)
                join(others[i]);
            CHECK(count == THREADS);
            EXPECT(elsewhere(try_it, &mutex), 0);
        }
        EXPECT(pthread_mutex_destroy(&mutex), 0);
    }
    return finish();
}
