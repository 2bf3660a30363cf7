// For each byte of input, 24 threads line up for a mutex, each asleep before the next comes. One has a tag, and comes twelfth. Prints how
// many of the others had the mutex before it.
#define _GNU_SOURCE
#include "../../../../include/lockwright.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAITERS = 24, TAGGED = 12 };

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t turn[WAITERS], done;
static atomic_int asks;
static int had, before;

static void *wait_in_line(void *argument) {
    long own = (long)argument;
    if (own == TAGGED)
        lw_tag(7);
    for (;;) {
        sem_wait(&turn[own]);
        asks = gettid();
        pthread_mutex_lock(&g_lock);
        if (own == TAGGED)
            before = had;
        had++;
        pthread_mutex_unlock(&g_lock);
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

int main(void) {
    sem_init(&done, 0, 0);
    for (long i = 0; i < WAITERS; i++) {
        pthread_t thread;
        sem_init(&turn[i], 0, 0);
        pthread_create(&thread, NULL, wait_in_line, (void *)i);
    }
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        pthread_mutex_lock(&g_lock);
        had = 0;
        for (int i = 0; i < WAITERS; i++) {
            asks = 0;
            sem_post(&turn[i]);
            while (!asks || state(asks) != 'S')
                usleep(100);
        }
        pthread_mutex_unlock(&g_lock);
        for (int i = 0; i < WAITERS; i++)
            sem_wait(&done);
        printf("%d\n", before);
        fflush(stdout);
    }
    return 0;
}
