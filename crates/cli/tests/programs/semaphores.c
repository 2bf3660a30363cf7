// 20 semaphores that are locks, one of which hoard() holds for long; one that is a signal; and one that lets two in.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t locks[20], ready, asked, two;
static volatile int stop;
static volatile long sum;

__attribute__((noinline)) void quick(int which) {
    sem_wait(&locks[which]);
    sum += which;
    sem_post(&locks[which]);
}

__attribute__((noinline)) void hoard(void) {
    sem_wait(&locks[13]);
    usleep(1000);
    sem_post(&locks[13]);
}

static void *quickly(void *seed) {
    unsigned next = (unsigned)(size_t)seed;
    while (!stop) {
        next = next * 1103515245 + 12345;
        quick((next >> 16) % 20);
        usleep(20);
    }
    return NULL;
}

static void *slowly(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        hoard();
        sem_post(&asked);
        sem_wait(&ready); // far longer than anybody waits for a lock
    }
    stop = 1;
    return NULL;
}

static void *answer(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        sem_wait(&asked);
        usleep(2000);
        sem_post(&ready);
    }
    return NULL;
}

static void *crowd(void *unused) {
    while (!stop) {
        sem_wait(&two);
        usleep(3000);
        sem_post(&two);
    }
    return unused;
}

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 200;
    for (int i = 0; i < 20; i++) sem_init(&locks[i], 0, 1);
    sem_init(&ready, 0, 0);
    sem_init(&asked, 0, 0);
    sem_init(&two, 0, 2);
    pthread_t threads[8];
    for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, quickly, (void *)(i + 1));
    pthread_create(&threads[3], NULL, slowly, (void *)rounds);
    pthread_create(&threads[4], NULL, answer, (void *)rounds);
    for (int i = 5; i < 8; i++) pthread_create(&threads[i], NULL, crowd, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
