/* On one CPU, which a woken waiter may take from the thread that has just released the lock: `slow` holds the lock
 * until the other thread sleeps for it, 100 times. `quick` makes nobody wait. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static int begin[2], done[2];
static volatile int waits;
static volatile long tid;

#define OUTER __attribute__((noinline, noclone))

OUTER static void quick(void)
{
    pthread_mutex_lock(&table);
    waits = 0;
    pthread_mutex_unlock(&table);
    __asm__ volatile("");
}

static void *user(void *unused)
{
    char c;
    tid = syscall(SYS_gettid);
    while (read(begin[0], &c, 1) == 1 && c == 'x') {
        waits = 1;
        quick();
        if (write(done[1], "x", 1) != 1)
            return unused;
    }
    return unused;
}

static int sleeps(void)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    char *read = fgets(line, sizeof line, file);
    fclose(file);
    char *behind = read ? strrchr(line, ')') : NULL;
    return behind && behind[2] == 'S';
}

OUTER static void slow(void)
{
    pthread_mutex_lock(&table);
    if (write(begin[1], "x", 1) == 1)
        while (!waits || !sleeps())
            usleep(100);
    usleep(1000);
    pthread_mutex_unlock(&table);
    __asm__ volatile("");
}

int main(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return 1;
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || pipe(begin) != 0 || pipe(done) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, user, NULL);
    char c;
    for (int i = 0; i < 100; i++) {
        slow();
        if (read(done[0], &c, 1) != 1)
            return 1;
    }
    if (write(begin[1], "e", 1) != 1)
        return 1;
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
