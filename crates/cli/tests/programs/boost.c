// For each byte of input, a thread holds a mutex, and another one waits for it whose priority is real-time. It prints the holder's
// real-time priority while the other one waits, as soon as it is not 0 (for a minute at most), and when the holder has released; or
// "refused", if the kernel gives nobody such a priority.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { URGENT = 7 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t done, may;
static int holder_id;

static int priority(void) {
    struct sched_param param = {0};
    sched_getparam(holder_id, &param);
    return param.sched_priority;
}

static void *holder(void *unused) {
    holder_id = (int)syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    sem_post(&done);
    sem_wait(&may);
    pthread_mutex_unlock(&lock);
    sem_post(&done);
    sem_wait(&may);
    return unused;
}

static void *waiter(void *unused) {
    struct sched_param param = {.sched_priority = URGENT};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) {
        puts("refused");
        exit(0);
    }
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    sem_init(&done, 0, 0);
    sem_init(&may, 0, 0);
    char byte;
    while (read(0, &byte, 1) > 0) {
        pthread_t threads[2];
        pthread_create(&threads[0], NULL, holder, NULL);
        sem_wait(&done);
        pthread_create(&threads[1], NULL, waiter, NULL);
        int meanwhile = 0;
        for (int tries = 0; tries < 60000 && meanwhile == 0; tries++) {
            usleep(1000);
            meanwhile = priority();
        }
        sem_post(&may);
        sem_wait(&done);
        pthread_join(threads[1], NULL);
        printf("%d %d\n", meanwhile, priority());
        fflush(stdout);
        sem_post(&may);
        pthread_join(threads[0], NULL);
    }
    return 0;
}
