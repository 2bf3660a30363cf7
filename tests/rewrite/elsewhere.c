/* Does a thread that has to wait run its section itself? Told to delegate always, the program goes on until another thread has run one; else
   for some rounds. In the end a child of fork runs a section alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread char here;
static long count;
static int elsewhere, asked;

/* Which thread runs this: the place of that thread's own data. */
static char *place(void)
{
    return &here;
}

static void section(char *mine)
{
    pthread_mutex_lock(&mutex);
    count++;
    if (place() != mine)
        elsewhere = 1;
    pthread_mutex_unlock(&mutex);
}

/* Holds the mutex until others wait for it, or are about to. */
static void hold(void)
{
    pthread_mutex_lock(&mutex);
    while (__atomic_load_n(&asked, __ATOMIC_RELAXED) < THREADS)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    pthread_mutex_unlock(&mutex);
}

static void *run(void *arg)
{
    __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
    section(&here);
    return arg;
}

int main(void)
{
    const char *how = getenv("LOCKWRIGHT_SECTIONS");
    int is_told = how && !strcmp(how, "always");
    long rounds = 0;
    do {
        pthread_t threads[THREADS];
        asked = 0;
        for (int i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, run, NULL))
                return 1;
        hold();
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        rounds++;
    } while (!elsewhere && (is_told || rounds < ROUNDS));
    if (count != rounds * THREADS)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        section(&here);
        _exit(count != rounds * THREADS + 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        return 3;
    puts(elsewhere ? "elsewhere" : "here");
    return 0;
}
