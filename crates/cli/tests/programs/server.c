// What the examples of `--help` call ./server, ./app and the like. Three threads work in epochs called `get`, which take four locks: a
// mutex and a readers-writer lock in variables, one in the heap, and one of libfoo.so. At its start it prints where the one in the heap lies, at its end a rate.
//
// It ends once its input has, and each thread has done its rounds. With PORT set it answers there instead, until a signal ends it.
#include "../../../../include/lockwright.h"
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 100 };

int leveldb_get(int key);  // libfoo.so

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t g_table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t *in_heap;
static int sum;
static volatile int is_over;

__attribute__((noinline)) static void visit(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock);
    // The holder sleeps, so that somebody waits for certain.
    if (++sum % 16 == 0) usleep(500);
    pthread_mutex_unlock(lock);
}

__attribute__((noinline)) static void look_up(int round) {
    if (round % 16) {
        pthread_rwlock_rdlock(&g_table);
    } else {
        pthread_rwlock_wrlock(&g_table);
        usleep(500);
    }
    pthread_rwlock_unlock(&g_table);
}

static void *work(void *unused) {
    for (int round = 0; round < ROUNDS || !is_over; round++) {
        lw_epoch_start(5);
        visit(&g_lock);
        visit(in_heap);
        look_up(round);
        leveldb_get(round);
        lw_epoch_end(5, 1000000);
        // One that stays leaves the CPUs to others.
        if (round >= ROUNDS) usleep(1000);
    }
    return unused;
}

static void answer(const char *port) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (struct sockaddr *)&here, sizeof here) || listen(door, 64)) {
        perror(port);
        exit(1);
    }
    for (;;) close(accept(door, NULL, NULL));
}

int main(void) {
    pthread_t threads[THREADS];
    in_heap = malloc(sizeof *in_heap);
    pthread_mutex_init(in_heap, NULL);
    lw_epoch_name(5, "get");
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    printf("%p\n", (void *)in_heap);
    fflush(stdout);
    char byte;
    if (getenv("PORT")) answer(getenv("PORT"));
    while (read(0, &byte, 1) > 0) {}
    is_over = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("rate: 100");
    return 0;
}
