/* Libraries that others preload: each wraps functions of libc, and says at the end what it saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long seen;

static void note(void)
{
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
}

/* In no other program that is started on the way. */
static __attribute__((destructor)) void tell(void)
{
    if (strcmp(program_invocation_short_name, "strangers") == 0)
        fprintf(stderr, "seen: %ld\n", EXACT ? seen : seen > 0);
}

#define NEXT(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) next;                                                             \
        if (next == NULL)                                                                          \
            next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                     \
        next;                                                                                      \
    })

#if defined MUTEX
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    note();
    return NEXT(pthread_mutex_lock)(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    note();
    return NEXT(pthread_mutex_unlock)(mutex);
}
#elif defined CLOCK
/* As libfaketime: the clock is wrong by so many seconds, and timed waits still take as long as they should. */
static int clock_gettime_(clockid_t clock, struct timespec *at)
{
    int error = NEXT(clock_gettime)(clock, at);
    if (clock == CLOCK_REALTIME)
        at->tv_sec += atol(getenv("SECONDS_OFF"));
    return error;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    note();
    return clock_gettime_(clock, at);
}

static struct timespec right(const struct timespec *at)
{
    struct timespec right = *at;
    right.tv_sec -= atol(getenv("SECONDS_OFF"));
    return right;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at)
{
    struct timespec until = right(at);
    note();
    return NEXT(pthread_cond_timedwait)(cond, mutex, &until);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *at)
{
    struct timespec until = right(at);
    note();
    return NEXT(sem_timedwait)(semaphore, &until);
}
#elif defined MALLOC
/* Its own lock is one of libc's. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size)
{
    pthread_mutex_lock(&mutex);
    note();
    pthread_mutex_unlock(&mutex);
    return NEXT(malloc)(size);
}

void free(void *at)
{
    pthread_mutex_lock(&mutex);
    note();
    pthread_mutex_unlock(&mutex);
    NEXT(free)(at);
}
#elif defined FILES
int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    note();
    return NEXT(open)(path, flags, mode);
}

ssize_t read(int file, void *bytes, size_t size)
{
    note();
    return NEXT(read)(file, bytes, size);
}
#elif defined THREADS
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with)
{
    note();
    return NEXT(pthread_create)(thread, how, run, with);
}
#endif
