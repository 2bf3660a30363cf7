// A program that hangs, in the way that its argument says. It prints the id of the process that does, and ends with its input.
// Which thread holds what is certain before any waits: threads meet at a barrier in between.
#define _GNU_SOURCE // names of threads
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline))
// After a call, so that it isn't a jump; and no two functions are the same.
#define STAY() __asm__ volatile("" : : "i"(__LINE__))
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t archive = PTHREAD_MUTEX_INITIALIZER, unlucky;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t met;
static sem_t never;
static int empty[2]; // a pipe that nobody writes to
static volatile int stop;

typedef void *task(void *);

APART static pthread_t start(const char *name, task *work, void *with) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, with);
    pthread_setname_np(thread, name);
    return thread;
}

APART static void takes(pthread_mutex_t *lock) { pthread_mutex_lock(lock); STAY(); }

// Threads that each hold one lock and want the next one's.
struct pair {
    pthread_mutex_t *first, *second;
};

APART static void transfers(struct pair *pair) {
    pthread_mutex_lock(pair->first);
    pthread_barrier_wait(&met);
    pthread_mutex_lock(pair->second);
    STAY();
}

static void *clerk(void *pair) {
    transfers(pair);
    return NULL;
}

static void circle(unsigned many) {
    static pthread_mutex_t *all[] = {&ledger, &journal, &archive};
    static const char *names[] = {"anna", "bert", "carl"};
    static struct pair pairs[LENGTH(all)];
    pthread_barrier_init(&met, NULL, many);
    for (unsigned i = 0; i < many; i++) {
        pairs[i] = (struct pair){all[i], all[(i + 1) % many]};
        start(names[i], clerk, &pairs[i]);
    }
}

// A circle in which each waits for an hour at most.
APART static void trades(struct pair *pair) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    pthread_mutex_lock(pair->first);
    pthread_barrier_wait(&met);
    pthread_mutex_timedlock(pair->second, &until);
    STAY();
}

static void *trader(void *pair) {
    trades(pair);
    return NULL;
}

static void timed(void) {
    static struct pair pairs[] = {{&ledger, &journal}, {&journal, &ledger}};
    pthread_barrier_init(&met, NULL, 2);
    start("anna", trader, &pairs[0]);
    start("bert", trader, &pairs[1]);
}

static void two(void) { circle(2); }
static void three(void) { circle(3); }

static void *again(void *lock) {
    pthread_mutex_lock(lock);
    takes(lock);
    return NULL;
}

static void itself(void) { start("anna", again, &ledger); }

// A lock of any kind, wanted while another thread has it.
static void *taker(void *lock) {
    takes(lock);
    return NULL;
}

static void *leaver(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}

static void ended(void) {
    pthread_join(start("bert", leaver, &ledger), NULL);
    start("anna", taker, &ledger);
}

static void *napper(void *lock) {
    pthread_mutex_lock(lock);
    pthread_barrier_wait(&met);
    for (;;) pause();
    return NULL;
}

static void cancelled(void) {
    pthread_barrier_init(&met, NULL, 2);
    pthread_t thread = start("bert", napper, &ledger);
    pthread_barrier_wait(&met);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    start("anna", taker, &ledger);
}

static pid_t child;

static void forked(void) {
    pthread_barrier_init(&met, NULL, 2);
    start("bert", napper, &ledger);
    pthread_barrier_wait(&met);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "copy");
        takes(&ledger);
    }
}

// The same, but the one that waits is the copy of a copy.
static void forked_twice(void) {
    int told[2];
    pthread_barrier_init(&met, NULL, 2);
    start("bert", napper, &ledger);
    pthread_barrier_wait(&met);
    if (pipe(told) == 0 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t own = fork();
        if (own == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_NAME, "copy");
            takes(&ledger);
        }
        if (write(told[1], &own, sizeof own) > 0)
            for (;;) pause();
    }
    while (read(told[0], &child, sizeof child) < 0) {}
}

// A lock that two processes share: its holder is no thread of the one that waits, but lives.
static void shared(void) {
    pthread_mutex_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &how);
    pthread_mutex_lock(lock);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "copy");
        takes(lock);
    }
}

// A holder waits for the end of a thread that wants the lock.
APART static void waits_for_the_end(pthread_t thread) { pthread_join(thread, NULL); STAY(); }

static void *joiner(void *unused) {
    pthread_mutex_lock(&ledger);
    waits_for_the_end(start("anna", taker, &ledger));
    return unused;
}

static void joined(void) { start("bert", joiner, NULL); }

// Readers and writers.
APART static void naps(void) {
    for (;;) nanosleep(&(struct timespec){.tv_sec = 1000}, NULL);
}

APART static void reads(void) { pthread_rwlock_rdlock(&table); STAY(); }
APART static void writes(void) { pthread_rwlock_wrlock(&table); STAY(); }

static void *napping_reader(void *unused) {
    reads();
    pthread_barrier_wait(&met);
    naps();
    return unused;
}
static void *napping_writer(void *unused) {
    writes();
    pthread_barrier_wait(&met);
    naps();
    return unused;
}
static void *reader(void *unused) {
    reads();
    return unused;
}
static void *writer(void *unused) {
    writes();
    return unused;
}

static void behind(task *holder, task *waiter) {
    pthread_barrier_init(&met, NULL, 2);
    start("bert", holder, NULL);
    pthread_barrier_wait(&met);
    start("anna", waiter, NULL);
}

static void behind_a_reader(void) { behind(napping_reader, writer); }
static void behind_a_writer(void) { behind(napping_writer, reader); }

// A holder that reads from a pipe, and many who wait for it.
APART static void loads(void) {
    char byte;
    ssize_t got = read(empty[0], &byte, 1);
    (void)got;
    STAY();
}

static void *loader(void *lock) {
    takes(lock);
    pthread_barrier_wait(&met);
    loads();
    return NULL;
}

static void behind_a_loader(pthread_mutex_t *lock, int waiters) {
    pthread_barrier_init(&met, NULL, 2);
    start("bert", loader, lock);
    pthread_barrier_wait(&met);
    while (waiters--) start("anna", taker, lock);
}

static void loading(void) { behind_a_loader(&ledger, 4); }

static void with_kind(int kind, int protocol, int robust) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_settype(&how, kind);
    pthread_mutexattr_setprotocol(&how, protocol);
    pthread_mutexattr_setrobust(&how, robust);
    pthread_mutex_init(&unlucky, &how);
    behind_a_loader(&unlucky, 1);
}

static void recursive(void) { with_kind(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED); }
static void inheriting(void) { with_kind(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED); }
static void robust(void) { with_kind(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST); }

// One waits for another, which waits for a third, which reads.
static void *second(void *unused) {
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&met);
    takes(&ledger);
    return unused;
}

static void chain(void) {
    pthread_barrier_init(&met, NULL, 2);
    start("carl", loader, &ledger);
    pthread_barrier_wait(&met);
    start("bert", second, NULL);
    pthread_barrier_wait(&met);
    start("anna", taker, &journal);
}

// A holder that waits for a condition, with another mutex.
APART static void awaits(pthread_mutex_t *lock) {
    for (;;) pthread_cond_wait(&filled, lock);
}

static void *consumer(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_lock(&archive);
    pthread_barrier_wait(&met);
    awaits(&archive);
    return NULL;
}

static void condition(void) {
    pthread_barrier_init(&met, NULL, 2);
    start("bert", consumer, &ledger);
    pthread_barrier_wait(&met);
    start("anna", taker, &ledger);
}

// Nobody hangs: a pool without work.
static int idlers;

static void *idler(void *unused) {
    pthread_mutex_lock(&archive);
    idlers++;
    awaits(&archive);
    return unused;
}
static void *poster(void *unused) {
    for (;;) sem_wait(&never);
    return unused;
}

static void idle(void) {
    for (int i = 0; i < 4; i++) start("idler", idler, NULL);
    // They have released it, so they wait for the condition.
    for (int all = 0; all < 4; usleep(1000)) {
        pthread_mutex_lock(&archive);
        all = idlers;
        pthread_mutex_unlock(&archive);
    }
    start("poster", poster, NULL);
    pthread_barrier_init(&met, NULL, 2);
    pthread_t alone = start("loader", loader, &ledger); // holds a lock that nobody wants
    pthread_barrier_wait(&met);
    (void)alone;
}

// Nor here: a thread waits for work, by words that a mutex could have which it holds itself.
static struct {
    int state, number, thread, items, flags, more[8];
} desk = {.state = 2};

APART static void awaits_work(void) {
    for (;;) syscall(SYS_futex, &desk.state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static void *secretary(void *unused) {
    desk.thread = gettid();
    pthread_barrier_wait(&met);
    awaits_work();
    return unused;
}

static void event(void) {
    pthread_barrier_init(&met, NULL, 2);
    start("secretary", secretary, NULL);
    pthread_barrier_wait(&met);
}

// Nor here: threads that wait for each other again and again.
static void *worker(void *unused) {
    while (!stop) {
        pthread_mutex_lock(&ledger);
        for (volatile int i = 0; i < 200; i++) {}
        pthread_mutex_unlock(&ledger);
        pthread_rwlock_wrlock(&table);
        pthread_rwlock_unlock(&table);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return unused;
}

static void busy(void) {
    for (int i = 0; i < 4; i++) start("worker", worker, NULL);
}

static const struct {
    const char *name;
    void (*hang)(void);
} ways[] = {
    {"two", two}, {"timed", timed}, {"three", three}, {"itself", itself}, {"ended", ended}, {"cancelled", cancelled},
    {"forked", forked}, {"forked-twice", forked_twice}, {"shared", shared}, {"joined", joined}, {"behind-a-reader", behind_a_reader},
    {"behind-a-writer", behind_a_writer}, {"loading", loading}, {"recursive", recursive},
    {"inheriting", inheriting}, {"robust", robust}, {"chain", chain}, {"condition", condition},
    {"idle", idle}, {"event", event}, {"busy", busy},
};

int main(int count, char **arguments) {
    sem_init(&never, 0, 0);
    if (count != 2 || pipe(empty) != 0) return 2;
    for (unsigned i = 0; i < LENGTH(ways); i++)
        if (strcmp(ways[i].name, arguments[1]) == 0) {
            ways[i].hang();
            printf("%d\n", child ? child : getpid());
            fflush(stdout);
            while (getchar() != EOF) {}
            _exit(0); // its threads never end
        }
    return 2;
}
