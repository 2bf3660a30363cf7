// Eight threads stress their locks in every possible way, while a command switches the process's locks. The program checks
// mutual exclusion (plain counters), that no wake-up is lost (tokens), that timed waits don't end early, and forked children.
//
//   switching [SECONDS]    until SECONDS have passed or, without, until its input ends
//
// First it prints where our library keeps its mailbox, and its policies. It answers each line of input with the number of critical
// sections so far. At the end it prints: sections, how many of them by trylock and by timed locks, waits for tokens, children, threads
// that were cancelled while they waited; then `ok`.
// A violation is reported on stderr and ends the program.
#include "../posix/check.h"
#include "../../include/lockwright.h"

enum { THREADS = 8, LOCKS = 3 };
/* A child that hangs ends first, since a thread of its parent waits for it. */
enum { CHILD_S = 40, THREAD_S = 60 };

static _Atomic bool stop;
static _Atomic uint64_t sections[THREADS], tries, timed, waits, children, cancelled;
static _Atomic long waiting; /* for tokens */

static void fail(const char *what)
{
    fprintf(stderr, "failed: %s; %ld threads wait for tokens\n", what, (long)waiting);
    _exit(1);
}

#define MUST(condition)          \
    do {                         \
        if (!(condition))        \
            fail(#condition);    \
    } while (0)

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    long a, pad[15], b;
    long tokens, waiters;
} locks[LOCKS];

static void work(uint64_t turns)
{
    for (volatile uint64_t i = 0; i < turns; i++)
        ;
}

static struct timespec after_ns(clockid_t clock, long ns)
{
    struct timespec time = in_ms(clock, 0);
    time.tv_nsec += ns;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static bool take(pthread_mutex_t *m, uint64_t dice)
{
    struct timespec deadline;
    int code;
    switch (dice % 16) {
    case 0:
        tries++;
        code = pthread_mutex_trylock(m);
        MUST(code == 0 || code == EBUSY);
        return code == 0;
    case 1:
        timed++;
        deadline = after_ns(CLOCK_REALTIME, (long)(dice >> 8) % 200000);
        code = pthread_mutex_timedlock(m, &deadline);
        MUST(code == 0 || code == ETIMEDOUT);
        MUST(code == 0 || has_passed(CLOCK_REALTIME, deadline));
        return code == 0;
    default:
        MUST(pthread_mutex_lock(m) == 0);
        return true;
    }
}

/* A child has one thread, and the parent's locks as they were. It takes those that it finds free; and it contends for a lock of
 * its own with a new thread. */
static void *of_child(void *lock)
{
    for (int i = 0; i < 100; i++) {
        MUST(pthread_mutex_lock(lock) == 0);
        work(20);
        MUST(pthread_mutex_unlock(lock) == 0);
    }
    return NULL;
}

static void child(void)
{
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    alarm(CHILD_S);
    for (int i = 0; i < LOCKS; i++)
        if (pthread_mutex_trylock(&locks[i].mutex) == 0) {
            MUST(locks[i].a == locks[i].b);
            MUST(pthread_mutex_unlock(&locks[i].mutex) == 0);
        }
    if (pthread_create(&thread, NULL, of_child, &own) == 0) {
        of_child(&own);
        MUST(pthread_join(thread, NULL) == 0);
    }
    _exit(0);
}

static void forks(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        child();
    if (pid < 0)
        return; /* no resources for a child */
    MUST(waitpid(pid, &status, 0) == pid);
    if (status != 0) {
        bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        fprintf(stderr, "a child's status: %#x%s\n", status, hung ? ": it made no progress" : "");
        fail("a child");
    }
    children++;
}

static void *victim(void *mutex)
{
    MUST(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    MUST(pthread_mutex_lock(mutex) == 0); /* the canceller holds it until this thread has ended */
    return NULL;
}

/* Cancels a thread at some point on its way to the mutex, which the caller holds, or in its wait. */
static void cancels(pthread_mutex_t *held, uint64_t dice)
{
    void *result;
    pthread_t thread;
    if (pthread_create(&thread, NULL, victim, held))
        return; /* no resources */
    usleep(dice % 200);
    MUST(pthread_cancel(thread) == 0);
    MUST(pthread_join(thread, &result) == 0);
    MUST(result == PTHREAD_CANCELED);
    cancelled++;
}

/* May the calling thread wait for a token? Not if all others do: then nobody would leave one. */
static bool may_wait(void)
{
    if (waiting++ < THREADS - 1)
        return true;
    waiting--;
    return false;
}

static void *body(void *data)
{
    intptr_t me = (intptr_t)data;
    uint64_t state = 1000003 + (uint64_t)me;
    lw_tag((uint64_t)me + 100);
    while (!stop) {
        uint64_t dice = next(&state);
        int which = (int)((dice >> 60) % LOCKS);
        pthread_mutex_t *m = &locks[which].mutex;
        if (!take(m, dice))
            continue;
        sections[me]++;
        MUST(locks[which].a == locks[which].b);
        locks[which].a++;
        work((dice >> 16) % 64);
        if ((dice >> 24) % 64 == 0)
            usleep(20); /* so that some thread always has to wait, however busy the machine is */
        if (me == 1 && (cancelled == 0 || (dice >> 30) % 1024 == 0))
            cancels(m, dice >> 20);
        locks[which].b++;
        /* Wait for a token, or leave one: nobody may wait forever while tokens are left. (One thread always leaves some.) */
        if ((dice >> 40) % 16 == 0 && locks[which].waiters < THREADS / 2 && may_wait()) {
            locks[which].waiters++;
            waits++;
            while (!locks[which].tokens && !stop) {
                if ((dice >> 44) % 2) {
                    struct timespec soon = after_ns(CLOCK_REALTIME, 100000);
                    int code = pthread_cond_timedwait(&locks[which].cond, m, &soon);
                    MUST(code == 0 || (code == ETIMEDOUT && has_passed(CLOCK_REALTIME, soon)));
                } else {
                    MUST(pthread_cond_wait(&locks[which].cond, m) == 0);
                }
                MUST(locks[which].a == locks[which].b);
            }
            if (locks[which].tokens)
                locks[which].tokens--;
            locks[which].waiters--;
            waiting--;
            MUST(pthread_mutex_unlock(m) == 0);
        } else {
            bool wake = locks[which].waiters > locks[which].tokens;
            if (wake)
                locks[which].tokens++;
            if (wake && (dice >> 46) % 8 == 0)
                MUST(pthread_cond_broadcast(&locks[which].cond) == 0);
            else if (wake)
                MUST(pthread_cond_signal(&locks[which].cond) == 0);
            MUST(pthread_mutex_unlock(m) == 0);
        }
        if (me == 0 && (children == 0 || dice % 16384 == 0))
            forks();
        work((dice >> 50) % 512);
    }
    return NULL;
}

static uint64_t all(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += sections[i];
    return sum;
}

/* If a thread makes no progress for long, it waits for a wake-up that was lost. */
static void *watch(void *data)
{
    uint64_t seen[THREADS] = {0};
    int still[THREADS] = {0};
    while (!stop) {
        sleep_ms(100);
        for (int i = 0; i < THREADS; i++) {
            still[i] = sections[i] == seen[i] ? still[i] + 1 : 0;
            seen[i] = sections[i];
            if (still[i] >= THREAD_S * 10)
                fail("a thread makes no progress for a minute");
        }
    }
    return data;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], watcher;
    for (int i = 0; i < LOCKS; i++) {
        OK(pthread_mutex_init(&locks[i].mutex, NULL));
        OK(pthread_cond_init(&locks[i].cond, NULL));
    }
    for (intptr_t i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    watcher = start(watch, NULL);
    printf("%p %p\n", dlsym(RTLD_DEFAULT, "lockwright_mailbox"), dlsym(RTLD_DEFAULT, "lockwright_programs"));
    fflush(stdout);
    if (argc > 1) {
        sleep_ms((long)(atof(argv[1]) * 1000));
    } else {
        char line[16];
        while (fgets(line, sizeof line, stdin)) {
            printf("%llu\n", (unsigned long long)all());
            fflush(stdout);
        }
    }
    stop = true;
    for (int i = 0; i < LOCKS; i++) {
        MUST(pthread_mutex_lock(&locks[i].mutex) == 0);
        MUST(pthread_cond_broadcast(&locks[i].cond) == 0);
        MUST(pthread_mutex_unlock(&locks[i].mutex) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    join(watcher);
    long in_locks = 0;
    for (int i = 0; i < LOCKS; i++) {
        MUST(locks[i].waiters == 0 && locks[i].a == locks[i].b);
        in_locks += locks[i].a;
    }
    MUST((uint64_t)in_locks == all());
    printf("%llu %llu %llu %llu %llu %llu\nok\n", (unsigned long long)all(), (unsigned long long)tries, (unsigned long long)timed,
           (unsigned long long)waits, (unsigned long long)children, (unsigned long long)cancelled);
    return failures != 0;
}
