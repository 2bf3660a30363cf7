// Four threads take two locks in turns, a variable and one in the heap, in epochs called `get`. Until its input ends. First it prints where
// the one in the heap lies, which is of HEAP_KIND if that is defined.
#include "../../../../include/lockwright.h"
#include "pause.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *in_heap;
static volatile long sum;
static volatile int is_over;

static void work(long steps) {
    for (long i = 0; i < steps; i++)
        sum += i;
}

__attribute__((noinline)) void visit(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock);
    work(300);
    pthread_mutex_unlock(lock);
}

static void *visitor(void *unused) {
    while (!is_over) {
        lw_epoch_start(5);
        visit(&g_lock);
        visit(in_heap);
        lw_epoch_end(5, 70000000);
        pause_at_times();
    }
    return unused;
}

int main(void) {
    pthread_t threads[4];
    in_heap = malloc(sizeof *in_heap);
#ifdef HEAP_KIND
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, HEAP_KIND);
    pthread_mutex_init(in_heap, &kind);
#else
    pthread_mutex_init(in_heap, NULL);
#endif
    lw_epoch_name(5, "get");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, visitor, NULL);
    printf("%p\n", (void *)in_heap);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    is_over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
