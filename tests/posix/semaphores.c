// Semaphores behave as glibc's: results and errno, signal handlers, cancellation, fork; counted or not.
// counted: yes
#include "check.h"
#include <limits.h>
#include <semaphore.h>

enum { THREADS = 4, ROUNDS = 20000, MINE = 4242 };

static sem_t lock, never, signalled;
static atomic_int waiting, left, interrupted;
static long count;

/* 0, or the error. A success leaves errno alone. */
static int result(int answer)
{
    if (answer == 0)
        CHECK(errno == MINE);
    int code = answer == 0 ? 0 : errno;
    errno = MINE;
    return code;
}

static void *add(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        errno = MINE;
        if (i % 7 == 0) {
            struct timespec soon = in_ms(CLOCK_MONOTONIC, 20000);
            CHECK(result(sem_clockwait(&lock, CLOCK_MONOTONIC, &soon)) == 0);
        } else if (i % 7 == 1) {
            struct timespec soon = in_ms(CLOCK_REALTIME, 20000);
            CHECK(result(sem_timedwait(&lock, &soon)) == 0);
        } else {
            CHECK(result(sem_wait(&lock)) == 0);
        }
        count++;
        if (i % 64 == 0)
            sched_yield();
        CHECK(result(sem_post(&lock)) == 0);
    }
    return unused;
}

static void times(void)
{
    struct timespec past = in_ms(CLOCK_REALTIME, -10), wrong = {0, 1000000000};
    struct timespec past_and_wrong = {-1, -1};
    struct timespec soon = in_ms(CLOCK_REALTIME, 20), later = in_ms(CLOCK_MONOTONIC, 20);
    errno = MINE;
    EXPECT(result(sem_trywait(&lock)), 0);
    EXPECT(result(sem_trywait(&lock)), EAGAIN);
    EXPECT(result(sem_timedwait(&lock, &past)), ETIMEDOUT);
    EXPECT(result(sem_timedwait(&lock, &wrong)), EINVAL);
    EXPECT(result(sem_timedwait(&lock, &past_and_wrong)), EINVAL);
    EXPECT(result(sem_timedwait(&lock, &soon)), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, soon));
    EXPECT(result(sem_clockwait(&lock, CLOCK_MONOTONIC, &later)), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, later));
    EXPECT(result(sem_clockwait(&lock, CLOCK_PROCESS_CPUTIME_ID, &later)), EINVAL);
    EXPECT(result(sem_post(&lock)), 0);
    sem_t full;
    OK(sem_init(&full, 0, SEM_VALUE_MAX));
    EXPECT(result(sem_post(&full)), EOVERFLOW);
    EXPECT(result(sem_destroy(&full)), 0);
}

static void post_it(int unused)
{
    (void)unused;
    int kept = errno;
    sem_post(&signalled);
    errno = kept;
}

static void leave_it(int unused)
{
    (void)unused;
    pthread_exit((void *)7);
}

static void nothing(int unused) { (void)unused; }

static void *wait_signalled(void *unused)
{
    waiting = (int)syscall(SYS_gettid);
    while (sem_wait(&signalled) != 0)
        interrupted += errno == EINTR;
    return unused;
}

static void has_left(void *unused)
{
    (void)unused;
    left++;
}

static void *wait_forever(void *asynchronous)
{
    pthread_cleanup_push(has_left, NULL);
    if (asynchronous)
        OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    waiting = (int)syscall(SYS_gettid);
    while (sem_wait(&never) != 0)
        ;
    pthread_cleanup_pop(0);
    return NULL;
}

/* A cancellation request that came before acts even if sem_wait needn't wait. */
static void *wait_free(void *unused)
{
    pthread_cleanup_push(has_left, NULL);
    pthread_cancel(pthread_self());
    sem_wait(&lock);
    pthread_cleanup_pop(0);
    return unused;
}

static void set_handler(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    OK(sigaction(number, &action, NULL));
}

static void signals(void)
{
    set_handler(SIGUSR1, nothing);
    set_handler(SIGUSR2, post_it);
    waiting = 0;
    pthread_t thread = start(wait_signalled, NULL);
    UNTIL(waiting && is_asleep(waiting));
    OK(pthread_kill(thread, SIGUSR1));
    UNTIL(interrupted == 1 && is_asleep(waiting));
    OK(pthread_kill(thread, SIGUSR2)); // its handler posts the semaphore that the thread waits for
    join(thread);
    int value = -1;
    OK(sem_getvalue(&signalled, &value));
    CHECK(value == 0);
}

static void cancellation(void)
{
    for (intptr_t asynchronous = 0; asynchronous < 2; asynchronous++) {
        waiting = 0;
        pthread_t thread = start(wait_forever, (void *)asynchronous);
        UNTIL(waiting && is_asleep(waiting));
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED);
        CHECK(left == asynchronous + 1);
    }
    CHECK(join(start(wait_free, NULL)) == PTHREAD_CANCELED);
    CHECK(left == 3);
    set_handler(SIGUSR1, leave_it);
    waiting = 0;
    pthread_t thread = start(wait_forever, NULL);
    UNTIL(waiting && is_asleep(waiting));
    OK(pthread_kill(thread, SIGUSR1));
    CHECK(join(thread) == (void *)7);
    CHECK(left == 4);
    // Nobody waits any more: a post stays, and is taken once.
    errno = MINE;
    EXPECT(result(sem_post(&never)), 0);
    EXPECT(result(sem_trywait(&never)), 0);
    EXPECT(result(sem_trywait(&never)), EAGAIN);
}

static void forked(void)
{
    errno = MINE;
    EXPECT(result(sem_wait(&lock)), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int before = failures;
        OK(sem_post(&lock)); // gives back what the parent has taken
        count = 0;
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(add, NULL);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        CHECK(count == (long)THREADS * ROUNDS);
        _exit(failures != before);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(result(sem_post(&lock)), 0);
}

int main(void)
{
    OK(sem_init(&lock, 0, 1));
    OK(sem_init(&never, 0, 0));
    OK(sem_init(&signalled, 0, 0));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(add, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    CHECK(count == (long)THREADS * ROUNDS);
    times();
    signals();
    cancellation();
    forked();
    OK(sem_destroy(&lock));
    OK(sem_destroy(&never));
    OK(sem_destroy(&signalled));
    return finish();
}
