/* Threads that wait for locks in several places, until the program is killed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    long before[5];
    pthread_mutex_t lock;
} record;
static __thread pthread_mutex_t own;
static pthread_mutex_t *places[3];

static inline __attribute__((always_inline)) void inner(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock); /* inner */
}

__attribute__((noinline)) void waiting(pthread_mutex_t *lock) {
    char room[200];
    memset(room, 1, sizeof room);
    inner(lock); /* waiting */
    __asm__ volatile("" : : "r"(room) : "memory");
}

static void *waiter(void *lock) {
    waiting(lock); /* waiter */
    return NULL;
}

static void *owner(void *unused) {
    (void)unused;
    pthread_mutex_t local = PTHREAD_MUTEX_INITIALIZER;
    places[1] = &local;
    places[2] = &own;
    pthread_mutex_lock(&local);
    pthread_mutex_lock(&own);
    __asm__ volatile("" : : : "memory");
    pause();
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, owner, NULL);
    while (!*(pthread_mutex_t *volatile *)&places[2]) usleep(1000);
    places[0] = malloc(sizeof *places[0]);
    pthread_mutex_init(places[0], NULL);
    pthread_mutex_lock(places[0]);
    pthread_mutex_lock(&record.lock);
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, waiter, places[i]);
    pthread_create(&thread, NULL, waiter, &record.lock);
    for (;;) pause();
}
