// A server's workers: three processes of one program, each with the same locks. In each, a thread waits twice for one lock and once for
// another: the holder keeps it until the other one sleeps.
#define _GNU_SOURCE // gettid
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline))
// After a call, so that it isn't a jump; and no two functions are the same.
#define STAY() __asm__ volatile("" : : "i"(__LINE__))

static pthread_mutex_t requests = PTHREAD_MUTEX_INITIALIZER, sessions = PTHREAD_MUTEX_INITIALIZER;
static int waiter; // its id, once it is about to wait

APART static void serves(pthread_mutex_t *lock) { pthread_mutex_lock(lock); STAY(); }
APART static void hands_on(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); STAY(); }

static void *session(void *lock) {
    __atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
    serves(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

// The waiter has nothing to sleep for but the lock.
static void until_it_sleeps(void) {
    char path[64], state = 'R';
    while (state != 'S') {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        int id = __atomic_load_n(&waiter, __ATOMIC_ACQUIRE);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
        FILE *file = id ? fopen(path, "r") : NULL;
        if (file == NULL) continue;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'R';
        fclose(file);
    }
}

static void once(pthread_mutex_t *lock) {
    pthread_t thread;
    waiter = 0;
    pthread_mutex_lock(lock);
    pthread_create(&thread, NULL, session, lock);
    until_it_sleeps();
    hands_on(lock);
    pthread_join(thread, NULL);
}

int main(void) {
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            once(&requests);
            once(&sessions);
            once(&requests);
            return 0;
        }
    while (wait(NULL) > 0) {}
    puts("done");
}
