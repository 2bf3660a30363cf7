// What observation costs, and whether it stays within its memory: run by observe.py.
//
//   throughput SECONDS THREADS TURNS GAP   threads take one mutex for TURNS of a loop, with GAP turns in between; prints sections/s
//   locks COUNT EVERY                      makes and destroys COUNT mutexes; a thread waits for every EVERYth; prints how many waits
//                                          there were, and ends when its input does
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, KEPT = 4096 };

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_over;
static int turns, gap;

static void spin(int count) {
    for (volatile int i = 0; i < count; i++) {
    }
}

static void *work(void *unused) {
    long sections = 0;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        pthread_mutex_lock(&one);
        spin(turns);
        pthread_mutex_unlock(&one);
        spin(gap);
        sections++;
    }
    (void)unused;
    return (void *)sections;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int throughput(char **words) {
    double seconds = atof(words[0]);
    int count = atoi(words[1]);
    if (count < 1 || count > MOST) return 2;
    turns = atoi(words[2]), gap = atoi(words[3]);
    pthread_t threads[MOST];
    double begun = now();
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, NULL);
    usleep(seconds * 1e6);
    atomic_store(&is_over, 1);
    long sections = 0;
    for (int i = 0; i < count; i++) {
        void *own;
        pthread_join(threads[i], &own);
        sections += (long)own;
    }
    printf("%f\n", sections / (now() - begun));
    return 0;
}

// The lock that the other thread should wait for.
static _Atomic(pthread_mutex_t *) wanted;
static atomic_int is_asking;

static void *visit(void *unused) {
    for (;;) {
        pthread_mutex_t *lock;
        while (!(lock = atomic_load(&wanted))) {
            if (atomic_load(&is_over)) return unused;
            sched_yield();
        }
        atomic_store(&is_asking, 1);
        pthread_mutex_lock(lock);
        pthread_mutex_unlock(lock);
        atomic_store(&wanted, NULL);
    }
}

// Is a waiter's mark in the lock's first word? Both our locks and glibc's have it there.
static int is_waited_for(pthread_mutex_t *lock) {
    return atomic_load((_Atomic int *)lock) != 1;
}

static int locks(char **words) {
    long count = atol(words[0]), every = atol(words[1]), waits = 0;
    pthread_t visitor;
    pthread_create(&visitor, NULL, visit, NULL);
    // Some stay for a while, so that addresses vary.
    pthread_mutex_t *kept[KEPT] = {0};
    for (long i = 0; i < count; i++) {
        int at = i % KEPT;
        if (kept[at]) {
            pthread_mutex_destroy(kept[at]);
            free(kept[at]);
        }
        pthread_mutex_t *lock = kept[at] = malloc(sizeof *lock + i % 7 * 16);
        pthread_mutex_init(lock, NULL);
        pthread_mutex_lock(lock);
        if (i % every == 0) {
            atomic_store(&is_asking, 0);
            atomic_store(&wanted, lock);
            while (!atomic_load(&is_asking) || !is_waited_for(lock)) sched_yield();
            waits++;
        }
        pthread_mutex_unlock(lock);
        while (atomic_load(&wanted)) sched_yield();
    }
    atomic_store(&is_over, 1);
    pthread_join(visitor, NULL);
    printf("%ld\n", waits);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}

int main(int count, char **words) {
    if (count == 6 && strcmp(words[1], "throughput") == 0) return throughput(words + 2);
    if (count == 4 && strcmp(words[1], "locks") == 0) return locks(words + 2);
    fprintf(stderr, "usage: %s throughput SECONDS THREADS TURNS GAP | locks COUNT EVERY\n", words[0]);
    return 2;
}
