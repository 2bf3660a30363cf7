// flag: -Wl,-z,now
// counted: yes
/* How much stack a wait takes, on the smallest stack that is allowed. The first thread that waits learns the machine, and later
 * a thread that waits looks at it again, once a second: that must take little stack, and do without files that it can't open.
 *
 * All functions are bound when the program starts (-z now): the dynamic linker's own use of the stack would hide ours. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

enum {
    UNTOUCHED = 0xa5,
    /* Bytes of stack that a process's first wait may take. What is seldom done has a stack of the library's own. */
    MOST_FIRST = 1792,
    /* The same for any other operation. (docs/limits.md says less: the library that users get is optimised further.) */
    MOST_LATER = 2048,
    /* The same where a lock chooses who is next (cal, programmed). */
    MOST_CHOOSING = 2688,
    /* The same while waits are counted or recorded. */
    MOST_WATCHED = 3328,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool stop;
static atomic_int waiter;
static size_t size;
static pthread_spinlock_t spinlock;

/* Of a thread that waits. */
struct seat {
    void (*wait)(void);
    unsigned char *stack;
    size_t taken;
};

static void lock(void)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
}

static void lock_until(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20000);
    OK(pthread_mutex_timedlock(&mutex, &soon));
    OK(pthread_mutex_unlock(&mutex));
}

/* Waits for the condition variable, and then for the mutex. */
static void wait_for_signal(void)
{
    OK(pthread_mutex_lock(&mutex));
    while (!stop)
        OK(pthread_cond_wait(&cond, &mutex));
    OK(pthread_mutex_unlock(&mutex));
}

static void read_lock(void)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
}

static void write_lock(void)
{
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
}

/* Gives up. */
static void lock_in_vain(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    CHECK(pthread_mutex_timedlock(&mutex, &soon) == ETIMEDOUT);
}

static void read_in_vain(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    CHECK(pthread_rwlock_timedrdlock(&rwlock, &soon) == ETIMEDOUT);
    soon = in_ms(CLOCK_REALTIME, 20);
    CHECK(pthread_rwlock_timedwrlock(&rwlock, &soon) == ETIMEDOUT);
    CHECK(pthread_rwlock_tryrdlock(&rwlock) == EBUSY);
}

static void wait_in_vain(void)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    OK(pthread_mutex_lock(&own));
    CHECK(pthread_cond_timedwait(&cond, &own, &soon) == ETIMEDOUT);
    OK(pthread_mutex_unlock(&own));
}

static void lock_free_ones(void)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_trylock(&mutex));
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_cond_signal(&cond));
    OK(pthread_cond_broadcast(&cond));
}

static void spin_often(void)
{
    do {
        OK(pthread_spin_lock(&spinlock));
        for (volatile int i = 0; i < 200; i++)
            ;
        OK(pthread_spin_unlock(&spinlock));
    } while (!stop);
}

static void signal_often(void)
{
    do {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        OK(pthread_mutex_lock(&mutex));
        int code = pthread_cond_timedwait(&cond, &mutex, &soon);
        CHECK(code == 0 || code == ETIMEDOUT);
        OK(pthread_cond_signal(&cond));
        OK(pthread_cond_broadcast(&cond));
        OK(pthread_mutex_unlock(&mutex));
        OK(pthread_cond_signal(&cond));
    } while (!stop);
}

static void share_often(void)
{
    do {
        OK(pthread_rwlock_rdlock(&rwlock));
        sched_yield();
        OK(pthread_rwlock_unlock(&rwlock));
        OK(pthread_rwlock_wrlock(&rwlock));
        sched_yield();
        OK(pthread_rwlock_unlock(&rwlock));
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        int code = pthread_rwlock_timedwrlock(&rwlock, &soon);
        if (code == 0)
            OK(pthread_rwlock_unlock(&rwlock));
    } while (!stop);
}

static void try_often(void)
{
    do {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        int code = pthread_mutex_timedlock(&mutex, &soon);
        if (code == 0)
            OK(pthread_mutex_unlock(&mutex));
        if (pthread_mutex_trylock(&mutex) == 0)
            OK(pthread_mutex_unlock(&mutex));
    } while (!stop);
}

static void lock_often(void)
{
    do {
        OK(pthread_mutex_lock(&mutex));
        for (volatile int i = 0; i < 2000; i++)
            ;
        sched_yield();
        OK(pthread_mutex_unlock(&mutex));
    } while (!stop);
}

static void *take_seat(void *data)
{
    struct seat *seat = data;
    const unsigned char *frame = __builtin_frame_address(0), *low = seat->stack;
    waiter = (int)syscall(SYS_gettid);
    seat->wait();
    while (*low == UNTOUCHED)
        low++;
    seat->taken = frame - low;
    return NULL;
}

static pthread_t start_on_new_stack(struct seat *seat)
{
    /* Below the stack lies a guard page. */
    size_t page = sysconf(_SC_PAGESIZE);
    size = (PTHREAD_STACK_MIN + page - 1) / page * page;
    unsigned char *low =
        mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(low != MAP_FAILED);
    OK(mprotect(low, page, PROT_NONE));
    seat->stack = memset(low + page, UNTOUCHED, size);
    pthread_t thread;
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstack(&attr, seat->stack, size));
    OK(pthread_create(&thread, &attr, take_seat, seat));
    OK(pthread_attr_destroy(&attr));
    return thread;
}

static void check_taken(const char *name, const struct seat *seat, size_t most)
{
    const char *lock = getenv("LOCKWRIGHT_LOCK");
    if (lock && (strncmp(lock, "cal", 3) == 0 || strncmp(lock, "programmed", 10) == 0))
        most = MOST_CHOOSING;
    if (getenv("LOCKWRIGHT_OBSERVE") || getenv("LOCKWRIGHT_TRACE"))
        most = MOST_WATCHED;
    /* For whoever measures by hand. */
    if (getenv("SAY"))
        fprintf(stderr, "%s takes %zu\n", name, seat->taken);
    if (seat->taken > most)
        printf("%s takes %zu bytes of stack\n", name, seat->taken);
    CHECK(seat->taken <= most);
}

/* The first wait of a process, in a thread of its own. */
static void first_wait(const char *name, void (*wait)(void))
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct seat seat = {.wait = wait};
        OK(pthread_mutex_lock(&mutex));
        OK(pthread_rwlock_wrlock(&rwlock));
        pthread_t thread = start_on_new_stack(&seat);
        UNTIL(waiter && is_asleep(waiter));
        OK(pthread_rwlock_unlock(&rwlock));
        OK(pthread_mutex_unlock(&mutex));
        sleep_ms(10);
        OK(pthread_mutex_lock(&mutex));
        stop = true;
        OK(pthread_cond_broadcast(&cond));
        OK(pthread_mutex_unlock(&mutex));
        join(thread);
        check_taken(name, &seat, MOST_FIRST);
        fflush(stdout);
        _exit(failures != 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* An operation that doesn't wait for long, in a thread of its own that the main thread waits for. */
static void alone(const char *name, void (*run)(void))
{
    struct seat seat = {.wait = run};
    join(start_on_new_stack(&seat));
    check_taken(name, &seat, MOST_LATER);
}

/* Four threads do this for so long. */
static void together(const char *name, void (*run)(void), int ms)
{
    struct seat seats[4];
    pthread_t threads[4];
    stop = false;
    for (int i = 0; i < 4; i++) {
        seats[i] = (struct seat){.wait = run};
        threads[i] = start_on_new_stack(&seats[i]);
    }
    sleep_ms(ms);
    stop = true;
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
        check_taken(name, &seats[i], MOST_LATER);
    }
}

/* A second of waits, in a program that can open no more files. */
static void later_waits(void)
{
    struct seat seats[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        seats[i] = (struct seat){.wait = lock_often};
        threads[i] = start_on_new_stack(&seats[i]);
    }
    /* A waiter soon takes its first look, while files can still be opened. */
    sleep_ms(200);
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 0;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK(open("/proc/self/stat", O_RDONLY) == -1 && errno == EMFILE);
    for (int i = 0; i < 11; i++)
        sleep_ms(100);
    stop = true;
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
        check_taken("a later wait", &seats[i], MOST_LATER);
    }
}

int main(void)
{
    OK(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    alone("a free lock", lock_free_ones);
    first_wait("mutex", lock);
    first_wait("mutex, timed", lock_until);
    first_wait("condition variable", wait_for_signal);
    first_wait("rwlock, reading", read_lock);
    first_wait("rwlock, writing", write_lock);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_rwlock_wrlock(&rwlock));
    alone("mutex, timed out", lock_in_vain);
    alone("rwlock, timed out", read_in_vain);
    alone("condition variable, timed out", wait_in_vain);
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_mutex_unlock(&mutex));
    together("mutexes", lock_often, 50);
    together("timed locks", try_often, 50);
    together("condition variables", signal_often, 50);
    together("rwlocks", share_often, 50);
    together("spinlocks", spin_often, 20);
    stop = false;
    later_waits();
    return finish();
}
