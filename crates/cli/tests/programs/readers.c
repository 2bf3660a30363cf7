// Four threads take two readers-writer locks in turns, mostly to read, and no mutex. Until its input ends. It prints a line at first, and
// another one for each byte of input, when each thread has done that ten thousand times more.
#include "pause.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 4, MORE = 10000 };

pthread_rwlock_t g_rw = PTHREAD_RWLOCK_INITIALIZER, g_other = PTHREAD_RWLOCK_INITIALIZER;
static struct {
    _Alignas(64) volatile long rounds;
} all[THREADS];
static volatile int is_over;

static void visit(pthread_rwlock_t *lock, int writes) {
    if (writes)
        pthread_rwlock_wrlock(lock);
    else
        pthread_rwlock_rdlock(lock);
    for (volatile int i = 0; i < 100; i++) {
    }
    pthread_rwlock_unlock(lock);
}

static void *visitor(void *own) {
    volatile long *rounds = own;
    while (!is_over) {
        long round = ++*rounds;
        visit(&g_rw, round % 8 == 0);
        visit(&g_other, round % 8 == 4);
        pause_at_times();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, visitor, (void *)&all[i].rounds);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        long begun[THREADS];
        for (int i = 0; i < THREADS; i++)
            begun[i] = all[i].rounds;
        for (int i = 0; i < THREADS; i++)
            while (all[i].rounds < begun[i] + MORE)
                usleep(100);
        puts("more");
        fflush(stdout);
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
