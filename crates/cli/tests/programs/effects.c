// For each byte of input, 16 threads line up for a mutex, each asleep before the next comes, as far as its role lets it. One of them has the
// role of the first argument, the others are plain. Prints how many of the others had the mutex before it.
#define _GNU_SOURCE
#include "../../../../include/lockwright.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, MIDDLE = THREADS / 2, US = 1000 };

// Where it comes in line; the CPUs of it and of the others, -1: any; whether the thread before it is of its kind.
static const struct role {
    const char *name;
    int place, cpu, others_cpu, pairs;
} roles[] = {
    {"big", MIDDLE, 0, 1, 0},     // on a big core
    {"short", MIDDLE, 0, 1, 0},   // there, and holds the lock for a short time only
    {"little", 0, 1, 0, 0},       // on a little core
    {"littles", 1, 1, 0, 1},      // the second of two there
    {"epoch", MIDDLE, -1, -1, 0}, // in an epoch with an SLO
    {"holds", MIDDLE, -1, -1, 0}, // holds another lock
    {"long", 0, -1, -1, 0},       // holds the lock for long; and its tenant is 1, the others' 2
    {"reader", 0, -1, -1, 0},     // there is much reading: 1 is printed if a reader leaves the readers-writer lock as it is, else 0
};
static const struct role *role;

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER, g_other = PTHREAD_MUTEX_INITIALIZER;
static sem_t turn[THREADS], done;
static atomic_int asks;
static int had, before;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int read_leaves_it(void) {
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    static char free[sizeof lock], held[sizeof lock];
    for (int i = 0; i < 20000; i++) {
        pthread_rwlock_rdlock(&lock);
        pthread_rwlock_unlock(&lock);
    }
    memcpy(free, &lock, sizeof lock);
    pthread_rwlock_rdlock(&lock);
    memcpy(held, &lock, sizeof lock);
    pthread_rwlock_unlock(&lock);
    return memcmp(free, held, sizeof lock) == 0;
}

static void hold(int64_t ns) {
    for (int64_t end = now() + ns; now() < end;)
        ;
}

static int is(const char *name) {
    return strcmp(role->name, name) == 0;
}

static void *wait_in_line(void *argument) {
    long own = (long)argument;
    int is_it = own == role->place, cpu = is_it || (role->pairs && own < role->place) ? role->cpu : role->others_cpu;
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    if (is("long"))
        lw_tag(is_it ? 1 : 2);
    for (;;) {
        sem_wait(&turn[own]);
        asks = gettid();
        if (is_it && is("holds")) {
            pthread_mutex_lock(&g_other);
            asks = gettid();
        }
        if (is_it && is("epoch"))
            lw_epoch_start(1);
        pthread_mutex_lock(&g_lock);
        if (is_it)
            before = had;
        had++;
        hold(is("long") && is_it ? 3000 * US : is("short") && !is_it ? 20 * US : 0);
        pthread_mutex_unlock(&g_lock);
        if (is_it && is("epoch"))
            lw_epoch_end(1, 50 * 1000);
        if (is_it && is("holds"))
            pthread_mutex_unlock(&g_other);
        sem_post(&done);
    }
    return NULL;
}

static char state(int thread) {
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return state;
}

// It sleeps; or it waits awake, for longer than before it joins a line.
static void await_sleep(void) {
    for (int looks = 0; looks < 100 * 1000 && (!asks || state(asks) != 'S'); looks++)
        usleep(100);
}

int main(int count, char **words) {
    for (role = roles; count > 1 && !is(words[1]); role++)
        ;
    sem_init(&done, 0, 0);
    for (long i = 0; i < THREADS; i++) {
        pthread_t thread;
        sem_init(&turn[i], 0, 0);
        pthread_create(&thread, NULL, wait_in_line, (void *)i);
    }
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        int64_t begun = now();
        pthread_mutex_lock(&g_lock);
        if (is("holds"))
            pthread_mutex_lock(&g_other);
        had = 0;
        for (int i = 0; i < THREADS; i++) {
            asks = 0;
            sem_post(&turn[i]);
            await_sleep();
            if (is("holds") && i == role->place) {
                asks = 0;
                pthread_mutex_unlock(&g_other); // now it has that one, and lines up
                await_sleep();
            }
        }
        // So that all have waited for about the same time.
        if (is("short"))
            usleep((now() - begun) / 1000 * 4);
        pthread_mutex_unlock(&g_lock);
        for (int i = 0; i < THREADS; i++)
            sem_wait(&done);
        printf("%d\n", is("reader") ? read_leaves_it() : before);
        fflush(stdout);
    }
    return 0;
}
