// Twenty locks. Four threads take them by turns; a fifth holds the one called `planted` for long. Until its input ends.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t others[19], planted = PTHREAD_MUTEX_INITIALIZER;
static volatile long sum;
static volatile int is_over;

static void work(long steps) {
    for (long i = 0; i < steps; i++)
        sum += i;
}

__attribute__((noinline)) void hoard(void) {
    pthread_mutex_lock(&planted);
    work(200000);
    usleep(1000);
    pthread_mutex_unlock(&planted);
}

static void *visitor(void *seed) {
    unsigned random = (unsigned)(long)seed;
    while (!is_over) {
        random = random * 1103515245 + 12345;
        unsigned which = (random >> 16) % 20;
        pthread_mutex_t *lock = which == 19 ? &planted : &others[which];
        pthread_mutex_lock(lock);
        work(50);
        pthread_mutex_unlock(lock);
    }
    return NULL;
}

static void *hoarder(void *unused) {
    while (!is_over) {
        hoard();
        usleep(1000);
    }
    return unused;
}

int main(void) {
    pthread_t threads[5];
    for (int i = 0; i < 19; i++)
        pthread_mutex_init(&others[i], NULL);
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, visitor, (void *)(i + 1));
    pthread_create(&threads[4], NULL, hoarder, NULL);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    is_over = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
