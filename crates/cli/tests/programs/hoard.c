// 20 locks, and one place that holds one of them for long: hoard().
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t locks[20];
static volatile int stop;
static volatile long sum;

__attribute__((noinline)) void quick(int which) {
    pthread_mutex_lock(&locks[which]);
    sum += which;
    pthread_mutex_unlock(&locks[which]);
}

__attribute__((noinline)) void hoard(void) {
    pthread_mutex_lock(&locks[13]);
    usleep(1000);
    pthread_mutex_unlock(&locks[13]);
}

static void *quickly(void *seed) {
    unsigned next = (unsigned)(size_t)seed;
    while (!stop) {
        next = next * 1103515245 + 12345;
        quick((next >> 16) % 20);
        usleep(20); // so that hardly anybody loses its CPU inside of quick()
    }
    return NULL;
}

static void *slowly(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        hoard();
        usleep(500);
    }
    stop = 1;
    return NULL;
}

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 200;
    for (int i = 0; i < 20; i++) pthread_mutex_init(&locks[i], NULL);
    pthread_t threads[4];
    for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, quickly, (void *)(i + 1));
    pthread_create(&threads[3], NULL, slowly, (void *)rounds);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 20; i++) pthread_mutex_destroy(&locks[i]);
    puts("done");
    return 0;
}
