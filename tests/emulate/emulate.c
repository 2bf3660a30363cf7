// What emulated little cores do to a thread, in figures that tests/emulate.rs holds against wide bounds.
//
//   emulate loop CPU MS        one thread locks, computes, unlocks, computes: operations
//   emulate one CPU            one long interval of compute between two locks: microseconds
//   emulate sleep CPU          20 sleeps of 5 ms inside of a critical section: microseconds
//   emulate wait CPU OTHER     20 waits of 5 ms for a lock whose holder sleeps on OTHER: microseconds
//   emulate kinds CPU          every kind of lock, N turns of compute under each: microseconds of each
//   emulate cond CPU OTHER     100 hand-overs by condvar, waited for on CPU, 1 ms each: microseconds
//   emulate fork CPU           as `one`, in a child
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

static long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void pin(const char *cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        exit(2);
    }
}

static void compute(long turns) {
    for (long i = 0; i < turns; i++) __asm__ volatile("");
}

static void nap_ms(long ms) {
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

static void loop(long ms) {
    long end = now_us() + ms * 1000, count = 0;
    while (now_us() < end) {
        for (int i = 0; i < 20; i++, count++) {
            pthread_mutex_lock(&lock);
            compute(4000);
            pthread_mutex_unlock(&lock);
            compute(4000);
        }
    }
    printf("%ld\n", count);
}

// Unlike the clock's, the program's own figure: the fastest of five.
static void one(void) {
    long best = -1;
    for (int i = 0; i < 5; i++) {
        pthread_mutex_lock(&lock);
        long start = now_us();
        compute(20000000);
        pthread_mutex_unlock(&lock);
        long took = now_us() - start;
        if (best < 0 || took < best) best = took;
    }
    printf("%ld\n", best);
}

static void sleeper(void) {
    long start = now_us();
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        nap_ms(5);
        pthread_mutex_unlock(&lock);
    }
    printf("%ld\n", now_us() - start);
}

static pthread_barrier_t meet;

static void *holder(void *cpu) {
    pin(cpu);
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        pthread_barrier_wait(&meet);
        nap_ms(5);
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&meet);
    }
    return NULL;
}

static void waiter(char *other) {
    pthread_t thread;
    pthread_barrier_init(&meet, NULL, 2);
    pthread_create(&thread, NULL, holder, other);
    long waited = 0;
    for (int i = 0; i < 20; i++) {
        pthread_barrier_wait(&meet);
        long start = now_us();
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        waited += now_us() - start;
        pthread_barrier_wait(&meet);
    }
    pthread_join(thread, NULL);
    printf("%ld\n", waited);
}

static void *turner(void *cpu) {
    pin(cpu);
    for (int i = 0; i < 100; i++) {
        nap_ms(1);
        pthread_mutex_lock(&lock);
        turn = i + 1;
        pthread_cond_signal(&cond);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void condvar(char *other) {
    pthread_t thread;
    pthread_create(&thread, NULL, turner, other);
    long start = now_us();
    pthread_mutex_lock(&lock);
    while (turn < 100) pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
    printf("%ld\n", now_us() - start);
    pthread_join(thread, NULL);
}

enum { TURNS = 3000000 };
#define MEASURE(name, take, give)                      \
    do {                                               \
        long best = -1;                                \
        for (int i = 0; i < 5; i++) {                  \
            if ((take) != 0) exit(3);                  \
            long start = now_us();                     \
            compute(TURNS);                            \
            if ((give) != 0) exit(3);                  \
            long took = now_us() - start;              \
            if (best < 0 || took < best) best = took;  \
        }                                              \
        printf(name " %ld\n", best);                   \
    } while (0)

static void kinds(void) {
    pthread_mutexattr_t attr;
    pthread_mutex_t recursive, shared;
    pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
    pthread_spinlock_t spin;
    struct timespec soon;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared, &attr);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += 1000;
    MEASURE("plain", pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock));
    MEASURE("trylock", pthread_mutex_trylock(&lock), pthread_mutex_unlock(&lock));
    MEASURE("timedlock", pthread_mutex_timedlock(&lock, &soon), pthread_mutex_unlock(&lock));
    MEASURE("recursive", pthread_mutex_lock(&recursive), pthread_mutex_unlock(&recursive));
    MEASURE("shared", pthread_mutex_lock(&shared), pthread_mutex_unlock(&shared));
    MEASURE("rdlock", pthread_rwlock_rdlock(&rw), pthread_rwlock_unlock(&rw));
    MEASURE("wrlock", pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw));
    MEASURE("timedwrlock", pthread_rwlock_timedwrlock(&rw, &soon), pthread_rwlock_unlock(&rw));
    MEASURE("spin", pthread_spin_lock(&spin), pthread_spin_unlock(&spin));
    MEASURE("signal", pthread_mutex_lock(&lock), pthread_cond_signal(&cond) | pthread_mutex_unlock(&lock));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pin(argv[2]);
    // The first lock operation on a slowed CPU begins its account.
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    if (!strcmp(argv[1], "loop") && argc == 4) loop(atol(argv[3]));
    else if (!strcmp(argv[1], "one")) one();
    else if (!strcmp(argv[1], "sleep")) sleeper();
    else if (!strcmp(argv[1], "wait") && argc == 4) waiter(argv[3]);
    else if (!strcmp(argv[1], "cond") && argc == 4) condvar(argv[3]);
    else if (!strcmp(argv[1], "kinds")) kinds();
    else if (!strcmp(argv[1], "fork")) {
        compute(20000000);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            one();
            return 0;
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) return 1;
    } else return 2;
    return 0;
}
