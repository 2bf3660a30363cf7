/* Twenty locks; one of them has a holder that keeps it for long. With an argument: the same by a readers-writer lock. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t quick_locks[19] = {[0 ... 18] = PTHREAD_MUTEX_INITIALIZER};
static struct {
    long before[5];
    pthread_mutex_t planted;
} table = {.planted = PTHREAD_MUTEX_INITIALIZER};
static pthread_rwlock_t index_lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile long sink;

__attribute__((noinline)) static void slow_update(void) {
    for (int i = 0; i < 3000000; i++) sink += i; /* slow_update */
}

__attribute__((noinline)) static void lookup(void) {
    pthread_mutex_lock(&table.planted); /* lookup */
    sink++;
    pthread_mutex_unlock(&table.planted);
}

static void *slow(void *unused) {
    for (;;) {
        pthread_mutex_lock(&table.planted);
        slow_update();
        pthread_mutex_unlock(&table.planted);
        usleep(100);
    }
    return NULL;
}

static void *fast(void *unused) {
    for (;;) {
        for (int i = 0; i < 19; i++) {
            pthread_mutex_lock(&quick_locks[i]);
            pthread_mutex_unlock(&quick_locks[i]);
        }
        lookup();
        usleep(100);
    }
    return NULL;
}

__attribute__((noinline)) static void rebuild(void) {
    usleep(3000); /* rebuild */
    sink++; /* or the call above would be a jump */
}

static void *writer(void *unused) {
    for (;;) {
        pthread_rwlock_wrlock(&index_lock);
        rebuild();
        pthread_rwlock_unlock(&index_lock);
        usleep(100);
    }
    return NULL;
}

static void *reader(void *unused) {
    for (;;) {
        pthread_rwlock_rdlock(&index_lock); /* reader */
        pthread_rwlock_unlock(&index_lock);
        usleep(100);
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t thread;
    pthread_create(&thread, NULL, count > 1 ? writer : slow, NULL);
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, count > 1 ? reader : fast, NULL);
    for (;;) pause();
}
