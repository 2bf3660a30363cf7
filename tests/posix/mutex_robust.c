// Robust mutexes: the holder dies, as a thread and as a process.
#include "check.h"

static void *die_holding(void *mutex)
{
    OK(pthread_mutex_lock(mutex));
    return NULL;
}

static void init_robust(pthread_mutex_t *m, int kind, int shared)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, kind));
    OK(pthread_mutexattr_setpshared(&attr, shared));
    OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(m, &attr));
}

static void one_kind(const char *name, int kind)
{
    printf("-- %s\n", name);
    pthread_mutex_t m;
    init_robust(&m, kind, PTHREAD_PROCESS_PRIVATE);
    EXPECT(pthread_mutex_consistent(&m), EINVAL);
    join(start(die_holding, &m));
    EXPECT(pthread_mutex_lock(&m), EOWNERDEAD);
    EXPECT(pthread_mutex_consistent(&m), 0);
    EXPECT(pthread_mutex_unlock(&m), 0);
    EXPECT(elsewhere(try_it, &m), 0);
    join(start(die_holding, &m));
    EXPECT(pthread_mutex_trylock(&m), EOWNERDEAD);
    EXPECT(pthread_mutex_unlock(&m), 0);
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_mutex_lock(&m), ENOTRECOVERABLE);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

/* A free mutex that glibc serves: the clock is looked at first. */
static void unknown_clock(void)
{
    pthread_mutex_t m;
    init_robust(&m, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED);
    struct timespec soon = in_ms(CLOCK_REALTIME, 2000);
    EXPECT(pthread_mutex_clocklock(&m, CLOCK_BOOTTIME, &soon), EINVAL);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

int main(void)
{
    one_kind("normal", PTHREAD_MUTEX_NORMAL);
    one_kind("recursive", PTHREAD_MUTEX_RECURSIVE);
    one_kind("errorcheck", PTHREAD_MUTEX_ERRORCHECK);

    unknown_clock();

    printf("-- another process\n");
    pthread_mutex_t *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    init_robust(m, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(m);
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    struct timespec soon = in_ms(CLOCK_REALTIME, 2000);
    EXPECT(pthread_mutex_timedlock(m, &soon), EOWNERDEAD);
    EXPECT(pthread_mutex_consistent(m), 0);
    EXPECT(pthread_mutex_unlock(m), 0);
    EXPECT(pthread_mutex_destroy(m), 0);
    return finish();
}
