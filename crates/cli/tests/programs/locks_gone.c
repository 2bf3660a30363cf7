// Many locks that come and go, each contended while it is there.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 3000 };
static pthread_barrier_t start, end;
static pthread_mutex_t *volatile lock;

static void *use(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&start);
        for (int turn = 0; turn < 20; turn++) {
            pthread_mutex_lock(lock);
            if (turn == 0) usleep(1);
            pthread_mutex_unlock(lock);
        }
        pthread_barrier_wait(&end);
    }
    return unused;
}

int main(void) {
    pthread_barrier_init(&start, NULL, 3);
    pthread_barrier_init(&end, NULL, 3);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, use, NULL);
    // All at different places, as far as `free` allows.
    pthread_mutex_t *all = calloc(ROUNDS, sizeof *all);
    for (int i = 0; i < ROUNDS; i++) {
        lock = &all[i];
        pthread_mutex_init(lock, NULL);
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        pthread_mutex_destroy(lock);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
