/* Shared by every program here. A program prints what it saw; under each lock it must print what it
 * prints under plain glibc. A check that fails also makes the program fail. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static atomic_int failures;

/* Checks that the condition holds. */
#define CHECK(condition) check_((condition), #condition, __FILE__, __LINE__)
/* Checks that the call returns this code; prints a line that names both. */
#define EXPECT(call, code) expect_((call), (code), #call, #code, __LINE__)
/* Checks that the call returns 0. */
#define OK(call) ok_((call), #call, __LINE__)

static inline const char *error_name(int code)
{
    const char *name = code == 0 ? "0" : strerrorname_np(code);
    return name ? name : "?";
}

static inline void check_(bool holds, const char *text, const char *file, int line)
{
    if (!holds) {
        printf("FAILED %s:%d: %s\n", file, line, text);
        fflush(stdout);
        failures++;
    }
}

static inline void expect_(int got, int want, const char *call, const char *code, int line)
{
    printf("%s = %s\n", call, error_name(got));
    if (got != want) {
        printf("FAILED line %d: %s = %s, not %s\n", line, call, error_name(got), code);
        failures++;
    }
    fflush(stdout);
}

static inline void ok_(int got, const char *call, int line)
{
    if (got != 0) {
        printf("FAILED line %d: %s = %s\n", line, call, error_name(got));
        fflush(stdout);
        failures++;
    }
}

static inline int finish(void)
{
    printf("%s\n", failures ? "failed" : "done");
    return failures != 0;
}

static inline void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

/* `ms` from now (or ago) on `clock`. */
static inline struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec time;
    clock_gettime(clock, &time);
    long ns = time.tv_nsec + ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + ns / 1000000000;
    time.tv_nsec = ns % 1000000000;
    if (time.tv_nsec < 0) {
        time.tv_nsec += 1000000000;
        time.tv_sec--;
    }
    return time;
}

static inline bool has_passed(clockid_t clock, struct timespec deadline)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > deadline.tv_sec ||
           (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

static inline pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int code = pthread_create(&thread, NULL, body, argument);
    if (code) {
        printf("FAILED: pthread_create = %s\n", error_name(code));
        exit(1);
    }
    return thread;
}

static inline void *join(pthread_t thread)
{
    void *result = NULL;
    OK(pthread_join(thread, &result));
    return result;
}

static inline void init_kind(pthread_mutex_t *mutex, int kind)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, kind));
    OK(pthread_mutex_init(mutex, &attr));
    OK(pthread_mutexattr_destroy(&attr));
}

/* Runs one call in another thread and hands back its code. */
struct elsewhere {
    int (*call)(void *);
    void *argument;
};

static inline void *elsewhere_body(void *data)
{
    struct elsewhere *job = data;
    return (void *)(intptr_t)job->call(job->argument);
}

static inline int elsewhere(int (*call)(void *), void *argument)
{
    struct elsewhere job = {call, argument};
    return (int)(intptr_t)join(start(elsewhere_body, &job));
}

static inline int try_it(void *mutex)
{
    int code = pthread_mutex_trylock(mutex);
    if (code == 0)
        OK(pthread_mutex_unlock(mutex));
    return code;
}

static inline int unlock_it(void *mutex) { return pthread_mutex_unlock(mutex); }

/* Waits, at most 20 s, until the condition holds. */
#define UNTIL(condition)                                           \
    do {                                                           \
        bool holds_ = false;                                       \
        for (int turn_ = 0; turn_ < 20000 && !holds_; turn_++) {   \
            holds_ = (condition);                                  \
            if (!holds_)                                           \
                sleep_ms(1);                                       \
        }                                                          \
        check_(holds_, #condition, __FILE__, __LINE__);            \
    } while (0)

/* Does this thread of ours sleep, or has it ended? Giving it time to fall asleep would not make sure. */
static inline bool is_asleep(int thread)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    size_t length = fread(line, 1, sizeof line - 1, file);
    line[length] = 0;
    fclose(file);
    const char *state = strstr(line, ") ");
    return length == 0 || (state && strchr("SZX", state[2]));
}

/* What gdb sees in a mutex that the calling thread holds: the thread's id; or a mark, while threads hand a contended mutex
 * on to each other and nobody has fallen asleep behind this thread yet. */
static inline bool is_owner(const pthread_mutex_t *mutex)
{
    int owner = mutex->__data.__owner;
    return owner == (int)syscall(SYS_gettid) || owner == 1 << 30;
}
