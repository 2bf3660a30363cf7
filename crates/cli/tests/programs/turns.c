// Threads that wait for more than mutexes, in the way that the argument says, until its input ends. It prints its id once they have begun.
#include "pause.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline))
// After a call, so that it isn't a jump; and no two functions are the same.
#define STAY() __asm__ volatile("" : : "i"(__LINE__))
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER, first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER, filled = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t met;

// How often it has happened.
static long times;

static void happens(void) { __atomic_fetch_add(&times, 1, __ATOMIC_RELAXED); }

static void naps(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

// A lock made of a mutex and a condition variable: threads have it in the order in which they came.
static unsigned next, now;

APART static void takes_turn(void) {
    pthread_mutex_lock(&guard);
    for (unsigned mine = next++; mine != now;) pthread_cond_wait(&turn, &guard);
    pthread_mutex_unlock(&guard);
    STAY();
}

// Only once another thread waits for the turn: whoever passes the turn on has waited for it, however busy the machine is.
APART static void passes_turn(void) {
    pthread_mutex_lock(&guard);
    while (next - now < 2) {
        pthread_mutex_unlock(&guard);
        naps(50000);
        pthread_mutex_lock(&guard);
    }
    now++;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&guard);
    STAY();
}

static void *player(void *unused) {
    for (;;) {
        takes_turn();
        naps(200000);
        passes_turn();
        happens();
        pause_at_times();
    }
    return unused;
}

// Each item wakes three threads, of which two wait again: it comes only once all of them wait.
static int items, sleepers;

APART static void takes_item(void) {
    pthread_mutex_lock(&guard);
    while (items == 0) {
        sleepers++;
        pthread_cond_wait(&filled, &guard);
    }
    items--;
    pthread_mutex_unlock(&guard);
    STAY();
}

static void *worker(void *unused) {
    for (;;) takes_item();
    return unused;
}

static void *poster(void *unused) {
    for (;;) {
        pthread_mutex_lock(&guard);
        if (sleepers >= 3) {
            items++;
            sleepers = 0; // each counts itself again
            pthread_cond_broadcast(&filled);
            happens();
        }
        pthread_mutex_unlock(&guard);
        naps(1000000);
    }
    return unused;
}

// One thread holds it for long, and another tries in vain.
static void *hoarder(void *unused) {
    for (;;) {
        pthread_mutex_lock(&guard);
        naps(10000000);
        pthread_mutex_unlock(&guard);
    }
    return unused;
}

APART static void tries(void) {
    if (pthread_mutex_trylock(&guard) == 0) pthread_mutex_unlock(&guard);
    else happens();
    STAY();
}

static void *trier(void *unused) {
    for (;;) {
        for (int i = 0; i < 20; i++) tries();
        naps(50000);
    }
    return unused;
}

// Two readers overlap for a while, so that a writer waits; then both are gone for a moment.
static void *reader(void *unused) {
    for (;;) {
        pthread_rwlock_rdlock(&table);
        naps(30000000);
        pthread_rwlock_unlock(&table);
        pthread_barrier_wait(&met);
        naps(1000000);
    }
    return unused;
}

APART static void writes(void) { pthread_rwlock_wrlock(&table); STAY(); }

static void *writer(void *unused) {
    for (;;) {
        writes();
        pthread_rwlock_unlock(&table);
        naps(1000000);
    }
    return unused;
}

// Two locks in opposite orders.
static void *transferer(void *is_other) {
    pthread_mutex_t *one = is_other ? &first : &second, *two = is_other ? &second : &first;
    pthread_mutex_lock(one);
    pthread_barrier_wait(&met);
    pthread_mutex_lock(two);
    return NULL;
}

static void *const SOME = &met;

static const struct {
    const char *name;
    void *(*threads[4])(void *);
} ways[] = {
    {"turns", {player, player, player}},
    {"items", {worker, worker, worker, poster}},
    {"tries", {hoarder, trier}},
    {"writers", {reader, reader, writer}},
    {"circle", {transferer, transferer}},
};

int main(int count, char **arguments) {
    if (count < 2) return 2;
    pthread_barrier_init(&met, NULL, 2);
    for (unsigned i = 0; i < LENGTH(ways); i++) {
        if (strcmp(ways[i].name, arguments[1]) != 0) continue;
        for (unsigned j = 0; j < LENGTH(ways[i].threads) && ways[i].threads[j]; j++) {
            pthread_t thread;
            pthread_create(&thread, NULL, ways[i].threads[j], j == 0 ? SOME : NULL);
        }
        printf("%d\n", getpid());
        fflush(stdout);
        // With one more argument, it ends by itself, once enough has happened.
        if (count > 2) while (__atomic_load_n(&times, __ATOMIC_RELAXED) < 500) naps(1000000);
        else while (getchar() != EOF) {}
        printf("done\n");
        fflush(stdout);
        _exit(0); // its threads never end
    }
    return 2;
}
