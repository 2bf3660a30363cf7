// Forks in one another, 300 deep. From each process one more is forked, which unlocks a mutex on which a thread of the first process
// waits, and contends for it. Then the process forks the next one while it holds another mutex, on which a thread of its own waits.
// limit: 90
#include "check.h"

#define DEPTH 300

/* The first process holds it, and no process on the way down touches it. */
static pthread_mutex_t old = PTHREAD_MUTEX_INITIALIZER;
/* Each process on the way down uses it, and forks while it holds it. */
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void *once(void *data)
{
    pthread_mutex_t *mutex = data;
    OK(pthread_mutex_lock(mutex));
    counter++;
    OK(pthread_mutex_unlock(mutex));
    return NULL;
}

static _Atomic int waiter;

static void *waits(void *data)
{
    waiter = (int)syscall(SYS_gettid);
    return once(data);
}

/* Starts a thread that waits for a mutex, which the caller holds. */
static pthread_t start_waiting(pthread_mutex_t *mutex)
{
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 64 * 1024));
    pthread_t thread;
    waiter = 0;
    OK(pthread_create(&thread, &attr, waits, mutex));
    OK(pthread_attr_destroy(&attr));
    UNTIL(waiter != 0 && is_asleep(waiter));
    return thread;
}

/* In a child with one thread, which holds `old`. */
static void contend(void)
{
    alarm(30);
    counter = 0;
    OK(pthread_mutex_unlock(&old));
    OK(pthread_mutex_lock(&old));
    pthread_t thread = start_waiting(&old);
    OK(pthread_mutex_unlock(&old));
    join(thread);
    OK(pthread_mutex_lock(&old));
    CHECK(counter == 1);
    fflush(stdout);
    _exit(failures != 0);
}

static void expect_good_end(pid_t pid, int depth)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        printf("FAILED: a process at depth %d ended with status %#x\n", depth, status);
        fflush(stdout);
        failures++;
    }
}

/* The process at this depth, which has one thread and holds both mutexes. Returns how deep they went. */
static int process(int depth)
{
    pid_t pid = fork();
    if (pid == 0)
        contend();
    expect_good_end(pid, depth + 1);
    alarm(30);
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_lock(&m));
    if (depth == DEPTH)
        return depth;
    pthread_t thread = start_waiting(&m);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        int deepest = process(depth + 1);
        CHECK(write(ends[1], &deepest, sizeof deepest) == sizeof deepest);
        fflush(stdout);
        _exit(failures != 0);
    }
    close(ends[1]);
    OK(pthread_mutex_unlock(&m));
    join(thread);
    alarm(0); /* The child has its own. */
    int deepest = depth;
    CHECK(read(ends[0], &deepest, sizeof deepest) == sizeof deepest);
    close(ends[0]);
    expect_good_end(pid, depth + 1);
    return deepest;
}

int main(void)
{
    OK(pthread_mutex_lock(&old));
    start_waiting(&old);
    OK(pthread_mutex_lock(&m));
    int deepest = process(0);
    printf("%d processes in one another\n", deepest);
    CHECK(deepest == DEPTH);
    fflush(stdout);
    _exit(failures != 0);
}
