// A mutex under constant contention is unlocked by threads that didn't lock it; some of the threads that did have ended
// by then. Meanwhile others lock it, try it, and wait for it with a deadline.
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { ROUNDS = 2000, ENDED = 100, THREADS = 4 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t locked, unlocked;
static long sections, tried, timed;

static void *contends(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        sections++;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return unused;
}

static void *looks(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 60;
        int got = i % 2 ? pthread_mutex_trylock(&mutex) : pthread_mutex_timedlock(&mutex, &until);
        if (got == 0) {
            *(i % 2 ? &tried : &timed) += 1;
            CHECK(pthread_mutex_unlock(&mutex) == 0);
        }
    }
    return unused;
}

static void *locks(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        sections++;
        sem_post(&locked);
        sem_wait(&unlocked);
    }
    return unused;
}

static void *unlocks(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&locked);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        sem_post(&unlocked);
    }
    return unused;
}

static void *ends_with_it(void *unused) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    sections++;
    return unused;
}

int main(void) {
    sem_init(&locked, 0, 0);
    sem_init(&unlocked, 0, 0);
    void *(*all[THREADS + 3])(void *) = {locks, unlocks, looks};
    pthread_t threads[THREADS + 3];
    for (int i = 0; i < THREADS + 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, all[i] ? all[i] : contends, NULL) == 0);
    }
    for (int i = 0; i < ENDED; i++) {
        pthread_t one;
        CHECK(pthread_create(&one, NULL, ends_with_it, NULL) == 0);
        CHECK(pthread_join(one, NULL) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    for (int i = 0; i < THREADS + 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(tried <= ROUNDS / 2);
    printf("%ld sections, %ld timed\n", sections, timed);
    CHECK(pthread_mutex_destroy(&mutex) == 0);
    return 0;
}
