// A mutex that is handed on through a condition variable. With `dropped` the program gives up root's rights first, as servers do.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 2000 };
// So large that its end lies in no page of the program's file.
static struct {
    char room[1 << 16];
    pthread_mutex_t lock;
} table;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int whose;

__attribute__((noinline)) static void take_turn(int me) {
    pthread_mutex_lock(&table.lock);
    while (whose != me) pthread_cond_wait(&turn, &table.lock);
    whose = (whose + 1) % THREADS;
    // The woken find it taken.
    pthread_cond_broadcast(&turn);
    if (me == 0) usleep(50);
    pthread_mutex_unlock(&table.lock);
}

static void *play(void *number) {
    for (int round = 0; round < ROUNDS; round++) take_turn((int)(long)number);
    return NULL;
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "dropped") == 0 && (setgid(65534) || setuid(65534))) return 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, play, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
