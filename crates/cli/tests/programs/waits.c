// Waits for everything but mutexes and semaphores, and failed trylocks. Each happens as often as the program says, whatever the machine:
// threads look at the locks' own words to see that another one waits.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#define APART __attribute__((noinline))
// After a call, so that it isn't a jump; and no two functions are the same.
#define STAY() __asm__ volatile("" : : "i"(__LINE__))

static void until(const void *word, unsigned mask) {
    while (!(__atomic_load_n((const unsigned *)word, __ATOMIC_ACQUIRE) & mask)) sched_yield();
}

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

// An rwlock: 4 in its word says that a reader sleeps; the highest bit, that a writer waits.
static pthread_rwlock_t table;
static int reads_now, may_stop;

APART static void reads(void) { pthread_rwlock_rdlock(&table); STAY(); }
APART static void stops_reading(void) { pthread_rwlock_unlock(&table); STAY(); }
APART static void writes(void) { pthread_rwlock_wrlock(&table); STAY(); }
APART static void stops_writing(void) { pthread_rwlock_unlock(&table); STAY(); }
APART static int gives_up_writing(void) {
    int answer = pthread_rwlock_timedwrlock(&table, &(struct timespec){.tv_sec = 1});
    STAY();
    return answer;
}

static void *reader(void *unused) {
    reads();
    set(&reads_now);
    until(&may_stop, 1);
    stops_reading();
    return unused;
}

static void *writer(void *unused) {
    writes();
    stops_writing();
    return unused;
}

static void rwlocks(int strictly) {
    pthread_rwlockattr_t how;
    pthread_rwlockattr_init(&how);
    if (strictly) pthread_rwlockattr_setkind_np(&how, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&table, &how);
    pthread_t one, other;
    writes();
    pthread_create(&one, NULL, reader, NULL);
    until(&table, 4);
    stops_writing();
    until(&reads_now, 1);
    printf("%s\n", strerror(gives_up_writing()));
    // What that one has left behind goes with a reader.
    pthread_rwlock_rdlock(&table);
    pthread_rwlock_unlock(&table);
    pthread_create(&other, NULL, writer, NULL);
    until((unsigned *)&table + 1, ~3u);
    until(&table, 1u << 31);
    set(&may_stop);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
}

// Failed tries. A thread that tries something else tells what it has kept.
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, once = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t busy_table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t busy_spin;
static int tried, left;

APART static void tries(pthread_mutex_t *lock) { pthread_mutex_trylock(lock); STAY(); }
APART static void tries_to_read(void) { pthread_rwlock_tryrdlock(&busy_table); STAY(); }
APART static void tries_to_write(void) { pthread_rwlock_trywrlock(&busy_table); STAY(); }
APART static void tries_to_spin(void) { pthread_spin_trylock(&busy_spin); STAY(); }
APART static void stops_holding(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); STAY(); }
APART static void leaves(void) { pthread_rwlock_unlock(&busy_table); STAY(); }

static void *trier(void *unused) {
    for (int i = 0; i < 7; i++) tries(&busy);
    for (int i = 0; i < 5; i++) tries_to_spin();
    tries_to_write(); // while it is read
    tries(&once);
    set(&tried);
    until(&left, 1);
    tries_to_read(); // while it is written
    return unused;
}

static void failed_tries(void) {
    pthread_t thread;
    pthread_spin_init(&busy_spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&busy_spin);
    pthread_mutex_lock(&busy);
    pthread_rwlock_rdlock(&busy_table);
    pthread_mutex_lock(&once);
    pthread_create(&thread, NULL, trier, NULL);
    until(&tried, 1);
    stops_holding(&once);
    leaves();
    pthread_rwlock_wrlock(&busy_table);
    set(&left);
    pthread_join(thread, NULL);
    leaves();
    stops_holding(&busy);
}

// A spin lock says nothing of its waiters. But one that has nothing else to do, and computes, must be one.
static pthread_spinlock_t spin;
static int about_to_spin;

APART static void spins(void) { pthread_spin_lock(&spin); STAY(); }

static void *spinner(void *unused) {
    pthread_spinlock_t own;
    pthread_spin_init(&own, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&own); // the linker has found the function now
    set(&about_to_spin);
    spins();
    pthread_spin_unlock(&spin);
    return unused;
}

static long computed_ns(pthread_t thread) {
    clockid_t clock;
    struct timespec now;
    pthread_getcpuclockid(thread, &clock);
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void spin_locks(void) {
    pthread_t thread;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&spin);
    pthread_create(&thread, NULL, spinner, NULL);
    until(&about_to_spin, 1);
    for (long start = computed_ns(thread); computed_ns(thread) - start < 20000000;) sched_yield();
    pthread_spin_unlock(&spin);
    pthread_join(thread, NULL);
}

// A mutex that glibc serves: it says in its word that a thread waits, by the highest bit, or by a 2 if it is only shared.
static pthread_mutex_t theirs;

static int has_theirs, may_drop;

APART static void wants(void) { pthread_mutex_lock(&theirs); STAY(); }
APART static void gives(void) { pthread_mutex_unlock(&theirs); STAY(); }
APART static int gives_up_theirs(void) {
    int answer = pthread_mutex_timedlock(&theirs, &(struct timespec){.tv_sec = 1});
    STAY();
    return answer;
}

static void *wanter(void *unused) {
    wants();
    set(&has_theirs);
    until(&may_drop, 1);
    pthread_mutex_unlock(&theirs);
    return unused;
}

static void glibcs(void) {
    for (int kind = 0; kind < 3; kind++) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        if (kind == 0) pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        if (kind == 1) pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
        if (kind == 2) pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&theirs, &how);
        has_theirs = may_drop = 0;
        pthread_mutex_lock(&theirs);
        pthread_t thread;
        pthread_create(&thread, NULL, wanter, NULL);
        until(&theirs, kind == 2 ? 2 : 1u << 31);
        gives();
        until(&has_theirs, 1);
        printf("%s\n", strerror(gives_up_theirs()));
        set(&may_drop);
        pthread_join(thread, NULL);
    }
}

// Three threads wait, and one item wakes them all. Then there is one for each of the other two.
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int items, taken, waits;

APART static void takes(void) {
    pthread_mutex_lock(&guard);
    while (items == 0) {
        waits++;
        pthread_cond_wait(&filled, &guard);
    }
    items--;
    taken++;
    pthread_mutex_unlock(&guard);
    STAY();
}

APART static void fills(int number, int all) {
    for (int done = 0; !done; sched_yield()) {
        pthread_mutex_lock(&guard);
        if (waits == all) {
            items = number;
            pthread_cond_broadcast(&filled);
            done = 1;
        }
        pthread_mutex_unlock(&guard);
    }
}

static void *taker(void *unused) {
    takes();
    return unused;
}

// Each of two threads waits for the other's turn.
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int whose;

APART static void waits_for(int me) {
    while (whose != me) pthread_cond_wait(&turn, &guard);
}
APART static void passes_to(int other) {
    whose = other;
    pthread_cond_signal(&turn);
    STAY();
}

static void *second(void *unused) {
    pthread_mutex_lock(&guard);
    passes_to(1);
    waits_for(2);
    pthread_mutex_unlock(&guard);
    return unused;
}

APART static int gives_up_waiting(void) {
    int answer = pthread_cond_timedwait(&turn, &guard, &(struct timespec){.tv_sec = 1});
    STAY();
    return answer;
}

static void gives_up_alone(void) {
    pthread_mutex_lock(&guard);
    printf("%s\n", strerror(gives_up_waiting()));
    pthread_mutex_unlock(&guard);
}

static mtx_t guard11;
static cnd_t called;
static int calls;

APART static void is_called(void) {
    while (!calls) cnd_wait(&called, &guard11);
}
APART static void calls_it(void) { cnd_signal(&called); STAY(); }

static int caller(void *unused) {
    mtx_lock(&guard11);
    calls = 1;
    calls_it();
    mtx_unlock(&guard11);
    return 0;
}

static void conditions(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, taker, NULL);
    fills(1, 3);
    fills(2, 5);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%d taken in %d waits\n", taken, waits);

    pthread_mutex_lock(&guard);
    pthread_cond_signal(&turn); // nobody waits
    pthread_create(&threads[0], NULL, second, NULL);
    waits_for(1);
    passes_to(2);
    pthread_mutex_unlock(&guard);
    pthread_join(threads[0], NULL);
    gives_up_alone();
    pthread_cond_destroy(&turn);

    thrd_t thread;
    mtx_init(&guard11, mtx_plain);
    cnd_init(&called);
    mtx_lock(&guard11);
    thrd_create(&thread, caller, NULL);
    is_called();
    mtx_unlock(&guard11);
    thrd_join(thread, NULL);
}

// A mutex that is taken a thousand times between two waits. 2 in its word says that a thread sleeps.
static pthread_mutex_t busy_twice = PTHREAD_MUTEX_INITIALIZER;

static void *takes_it(void *mutex) {
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return mutex;
}

static void lets_one_wait(void) {
    pthread_t one;
    pthread_mutex_lock(&busy_twice);
    pthread_create(&one, NULL, takes_it, &busy_twice);
    until(&busy_twice, 2);
    pthread_mutex_unlock(&busy_twice);
    pthread_join(one, NULL);
}

static void acquisitions(void) {
    lets_one_wait();
    for (int i = 0; i < 1000; i++) takes_it(&busy_twice);
    lets_one_wait();
}

// A thread waits for a mutex, and so makes the memory for the counts. Meanwhile it gets a signal, whose handler stays, as a collector's does that
// stops the world; and the holder begins to wait for a condition variable.
static int may_go_on;

static void stays(int unused) {
    (void)unused;
    until(&may_go_on, 1);
}

static void at_once(void) {
    pthread_t one;
    signal(SIGUSR1, stays);
    pthread_mutex_lock(&guard);
    pthread_create(&one, NULL, takes_it, &guard);
    // If the thread hasn't come that far by then, the test finds nothing, and passes.
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    pthread_kill(one, SIGUSR1);
    printf("%s\n", strerror(gives_up_waiting()));
    set(&may_go_on);
    pthread_mutex_unlock(&guard);
    pthread_join(one, NULL);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "rwlocks")) rwlocks(0);
    if (!strcmp(what, "strictly")) rwlocks(1);
    if (!strcmp(what, "tries")) failed_tries();
    if (!strcmp(what, "spins")) spin_locks();
    if (!strcmp(what, "glibcs")) glibcs();
    if (!strcmp(what, "conditions")) conditions();
    if (!strcmp(what, "alone")) gives_up_alone();
    if (!strcmp(what, "at-once")) at_once();
    if (!strcmp(what, "taken")) acquisitions();
    puts("done");
    return 0;
}
