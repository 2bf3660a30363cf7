// Locks whose holders are slow for another reason than what they compute; the argument says which. It says `ready` once its threads run,
// and ends with its input.
#define _GNU_SOURCE // CPUs of threads
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline))
// After a call, so that it isn't a jump; and no two functions are the same.
#define STAY() __asm__ volatile("" : : "i"(__LINE__))
#define SPINNERS 6

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static int is_done, is_asked;

typedef void *task(void *);

static void start(task *work) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

APART static void takes(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    STAY();
}

static void *taker(void *unused) {
    for (;; sleep_ms(1)) takes(&outer);
    return unused;
}

// The holder sleeps in a call that another function makes.
APART static void syncs(void) {
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    STAY();
}

APART static void saves(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock);
    syncs();
    pthread_mutex_unlock(lock);
}

static void *saver(void *unused) {
    for (;; sleep_ms(1)) saves(&outer);
    return unused;
}

static void asleep(void) {
    start(saver);
    start(taker);
}

// The same with a readers-writer lock, which many threads read.
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

APART static void reads(void) {
    pthread_rwlock_rdlock(&table);
    STAY();
    pthread_rwlock_unlock(&table);
}

static void *reader(void *unused) {
    for (;; sleep_ms(1)) reads();
    return unused;
}

APART static void rewrites(void) {
    pthread_rwlock_wrlock(&table);
    syncs();
    pthread_rwlock_unlock(&table);
}

static void *writer(void *unused) {
    for (;; sleep_ms(1)) rewrites();
    return unused;
}

static void written(void) {
    start(writer);
    for (int i = 0; i < 3; i++) start(reader);
}

// The holder waits for another lock, whose holder sleeps.
APART static void nests(void) {
    pthread_mutex_lock(&outer);
    takes(&inner);
    pthread_mutex_unlock(&outer);
}

static void *nester(void *unused) {
    for (;; sleep_ms(1)) nests();
    return unused;
}

static void *inner_saver(void *unused) {
    for (;; sleep_ms(1)) saves(&inner);
    return unused;
}

static void nested(void) {
    start(inner_saver);
    start(nester);
    start(taker);
}

// The holder waits for what another thread does.
APART static void asks(void) {
    pthread_mutex_lock(&outer);
    pthread_mutex_lock(&guard);
    is_asked = 1;
    is_done = 0;
    while (!is_done) pthread_cond_wait(&done, &guard);
    pthread_mutex_unlock(&guard);
    pthread_mutex_unlock(&outer);
}

static void *asker(void *unused) {
    for (;; sleep_ms(1)) asks();
    return unused;
}

static void *answerer(void *unused) {
    for (;;) {
        sleep_ms(30);
        pthread_mutex_lock(&guard);
        if (is_asked) {
            is_asked = 0;
            is_done = 1;
            pthread_cond_signal(&done);
        }
        pthread_mutex_unlock(&guard);
    }
    return unused;
}

static void asking(void) {
    start(asker);
    start(answerer);
    start(taker);
}

// The same, by a futex of the program's own.
static int answer;

APART static void requests(void) {
    pthread_mutex_lock(&outer);
    __atomic_store_n(&answer, 0, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&answer, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &answer, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    pthread_mutex_unlock(&outer);
}

static void *requester(void *unused) {
    for (;; sleep_ms(1)) requests();
    return unused;
}

static void *responder(void *unused) {
    for (;; sleep_ms(30)) {
        __atomic_store_n(&answer, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &answer, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    return unused;
}

static void requesting(void) {
    start(requester);
    start(responder);
    start(taker);
}

// The holder shares one CPU with threads that compute all the time.
static void stay_on_one_cpu(void) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *spinner(void *unused) {
    stay_on_one_cpu();
    for (volatile unsigned long i = 0;; i++) {}
    return unused;
}

static long computed_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

APART static void computes(void) {
    pthread_mutex_lock(&outer);
    for (long start = computed_ns(); computed_ns() - start < 5000000;) {}
    pthread_mutex_unlock(&outer);
}

static void *computer(void *unused) {
    stay_on_one_cpu();
    for (;; sleep_ms(1)) computes();
    return unused;
}

static void preempted(void) {
    for (int i = 0; i < SPINNERS; i++) start(spinner);
    start(computer);
    start(taker);
}

// The holder computes on the second CPU, and who waits is on the first.
static void stay_on(int which) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all) || which-- > 0) cpu++;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *slow_computer(void *unused) {
    stay_on(1);
    for (;; sleep_ms(1)) computes();
    return unused;
}

static void *fast_taker(void *unused) {
    stay_on(0);
    return taker(unused);
}

static void little(void) {
    start(slow_computer);
    start(fast_taker);
}

static void *nice_computer(void *unused) {
    setpriority(PRIO_PROCESS, gettid(), 10);
    return computer(unused);
}

static void inverted(void) {
    start(spinner);
    start(nice_computer);
    start(taker);
}

// A FILE whose first writer sleeps, as the pipe is full.
static FILE *full;

APART static void logs(void) { fputs("line\n", full); STAY(); }

static void *logger(void *unused) {
    logs();
    return unused;
}

static void stdio(void) {
    int ends[2];
    if (pipe(ends) != 0) exit(2);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    static const char page[4096];
    while (write(ends[1], page, sizeof page) > 0) {}
    fcntl(ends[1], F_SETFL, 0);
    full = fdopen(ends[1], "w");
    setvbuf(full, NULL, _IONBF, 0);
    for (int i = 0; i < 3; i++) start(logger);
}

// Threads that allocate more than each has for itself.
APART static void allocates(void) {
    char *volatile memory[8];
    for (int i = 0; i < 8; i++) memory[i] = malloc(3000 + 500 * i);
    for (int i = 0; i < 8; i++) free(memory[i]);
}

static void *allocator(void *unused) {
    for (;;) allocates();
    return unused;
}

static void arena(void) {
    for (int i = 0; i < 4; i++) start(allocator);
}

static const struct {
    const char *name;
    void (*run)(void);
} causes[] = {
    {"asleep", asleep}, {"written", written}, {"nested", nested}, {"asking", asking}, {"requesting", requesting}, {"preempted", preempted}, {"little", little},
    {"inverted", inverted}, {"stdio", stdio}, {"arena", arena},
};

int main(int count, char **arguments) {
    for (unsigned i = 0; i < sizeof causes / sizeof *causes; i++)
        if (count == 2 && strcmp(causes[i].name, arguments[1]) == 0) {
            causes[i].run();
            char byte;
            if (write(1, "ready\n", 6) != 6) return 2;
            while (read(0, &byte, 1) > 0) {}
            _exit(0); // its threads never end
        }
    return 2;
}
