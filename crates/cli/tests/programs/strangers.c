/* A program like any other, for strangers to meet: four threads count, hand turns over, sleep with bounds; files and memory are used. It
 * prints the same each time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 5000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long count, turn;

static void *work(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
    }
    pthread_mutex_lock(&mutex);
    while (turn != me)
        pthread_cond_wait(&changed, &mutex);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    char *bytes = malloc(100 + me);
    memset(bytes, 1, 100 + me);
    free(bytes);
    return NULL;
}

/* What the kernel's clock says, whatever libraries say. */
static long now_ms(void)
{
    struct timespec at;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static struct timespec soon(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 100 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

static void say(const char *what, int error, long since)
{
    /* 90: the clocks differ by a tick. */
    printf("%s: %s, %s\n", what, strerror(error), now_ms() - since >= 90 ? "in time" : "early");
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld rounds, %ld turns\n", count, turn);

    struct timespec until = soon();
    long start = now_ms();
    pthread_mutex_lock(&mutex);
    int error;
    do
        error = pthread_cond_timedwait(&changed, &mutex, &until);
    while (error == 0);
    pthread_mutex_unlock(&mutex);
    say("condvar", error, start);

    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    until = soon();
    start = now_ms();
    while ((error = sem_timedwait(&semaphore, &until) == 0 ? 0 : errno) == EINTR)
        ;
    say("semaphore", error, start);

    char bytes[4];
    int file = open("/proc/self/exe", O_RDONLY);
    ssize_t len = read(file, bytes, sizeof bytes);
    printf("%zd bytes: %.3s\n", len, bytes + 1);
    close(file);
    return 0;
}
