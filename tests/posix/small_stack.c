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
    /* Bytes of stack that a process's first wait may take. */
    MOST_FIRST = 2048,
    /* The same for a later wait, with others, among which a lock may choose. (docs/limits.md says less: the library that users get is
     * optimised further.) */
    MOST_LATER = 3072,
    /* The same while waits are counted or recorded: the first wait also makes a file. */
    MOST_WATCHED = 4096,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool stop;
static atomic_int waiter;
static size_t size;

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
    if (getenv("LOCKWRIGHT_OBSERVE") || getenv("LOCKWRIGHT_TRACE"))
        most = MOST_WATCHED;
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
    first_wait("mutex", lock);
    first_wait("mutex, timed", lock_until);
    first_wait("condition variable", wait_for_signal);
    first_wait("rwlock, reading", read_lock);
    first_wait("rwlock, writing", write_lock);
    later_waits();
    return finish();
}
