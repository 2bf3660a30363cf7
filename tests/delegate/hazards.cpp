// What sections may do that must not happen on another thread, or must look as if it had not: one way for each argument.
// Run with LOCKWRIGHT_DELEGATE=all. Exits with 0 if nothing was seen from inside, and prints how many sections ran elsewhere.
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define REQUIRE(what) \
    do { \
        if (!(what)) { \
            std::fprintf(stderr, "%s:%d: %s: not so\n", way, __LINE__, #what); \
            std::_Exit(1); \
        } \
    } while (0)

static const char *way;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long count;
static std::atomic<long> elsewhere;
static std::atomic<bool> stop;
static thread_local long mine;
static thread_local pthread_t self;
static thread_local long id;

// The kernel's id of the thread, behind the back of whoever stands in front of libc.
static long kernel_id() {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_gettid) : "rcx", "r11", "memory");
    return result;
}

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// Long enough that others come to wait.
static void dwell(int turns = 300) {
    for (volatile int i = 0; i < turns; i++) {
    }
}

static void enter() {
    mine++;
    errno = static_cast<int>(mine % 100) + 1;
    pthread_mutex_lock(&mutex);
}

// In the section: everything that belongs to a thread is this thread's.
static void look() {
    REQUIRE(errno == static_cast<int>(mine % 100) + 1);
    REQUIRE(pthread_equal(self, pthread_self()));
    count++;
    elsewhere += kernel_id() != id;
    dwell();
}

static void at_home() { REQUIRE(kernel_id() == id); }

static void leave() {
    pthread_mutex_unlock(&mutex);
    at_home();
}

static void plain() {
    enter();
    look();
    leave();
}

static void memory() {
    enter();
    look();
    std::vector<std::string> words;
    for (int i = 0; i < 8; i++)
        words.push_back(std::string(10 + 40 * i, 'x'));
    REQUIRE(words[7].size() == 290);
    leave();
}

static void throws() {
    struct Lock {
        Lock() { enter(); }
        ~Lock() { pthread_mutex_unlock(&mutex); }
    };
    try {
        Lock lock;
        look();
        try {
            throw 7;
        } catch (int seven) {
            REQUIRE(seven == 7);
        }
        throw std::runtime_error("out");
    } catch (const std::runtime_error &error) {
        REQUIRE(!std::strcmp(error.what(), "out"));
    }
    at_home();
}

// Other mutexes inside, in one order; also with the outer one released first.
static void nested() {
    enter();
    look();
    pthread_mutex_lock(&inner);
    dwell(20);
    if (mine % 2) {
        pthread_mutex_unlock(&inner);
        leave();
    } else {
        pthread_mutex_unlock(&mutex);
        pthread_mutex_unlock(&inner);
    }
    at_home();
    if (mine % 8 == 0) {
        pthread_mutex_lock(&inner);
        dwell(500);
        pthread_mutex_unlock(&inner);
    }
}

// A carrier's own context holds `inner` here, while it runs another's section, which asks for it.
static void crossed() {
    pthread_mutex_lock(&inner);
    if (pthread_mutex_trylock(&mutex) == 0) {
        dwell(2000);
        pthread_mutex_unlock(&mutex);
    }
    dwell(200);
    pthread_mutex_unlock(&inner);
    enter();
    look();
    pthread_mutex_lock(&inner);
    dwell(20);
    pthread_mutex_unlock(&inner);
    leave();
}

static int turn;
static void waits() {
    enter();
    look();
    if (turn % 2) {
        turn++;
        pthread_cond_broadcast(&cond);
    } else {
        turn++;
        timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        if (until.tv_nsec >= 1000000000)
            until.tv_sec++, until.tv_nsec -= 1000000000;
        int was = turn;
        while (turn == was)
            if (pthread_cond_timedwait(&cond, &mutex, &until) == ETIMEDOUT)
                break;
        at_home();
    }
    leave();
}

// A section that spins until another thread's next step, which may be its carrier's: nothing of libc is called.
static std::atomic<long> steps;
static void spins() {
    long before = steps;
    enter();
    look();
    if (mine % 16 == 0) {
        double end = now() + 0.2;
        while (steps == before && now() < end) {
        }
        REQUIRE(pthread_equal(self, pthread_self()));
    }
    leave();
    steps++;
}

static void sleeps() {
    enter();
    look();
    if (mine % 8 == 0) {
        timespec time = {0, 100000};
        nanosleep(&time, nullptr);
        at_home();
    }
    leave();
}

static void asks() {
    enter();
    look();
    if (mine % 4 == 0)
        REQUIRE(gettid() == id && syscall(SYS_gettid) == id);
    leave();
}

static void forks() {
    enter();
    look();
    if (mine % 64 == 0) {
        pid_t child = fork();
        if (child == 0) {
            long was = count;
            self = pthread_self();
            id = kernel_id();
            pthread_mutex_unlock(&mutex);
            for (int i = 0; i < 100; i++)
                plain();
            std::_Exit(count == was + 100 ? 7 : 1);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    leave();
}

static void jumps() {
    enter();
    jmp_buf place;
    volatile int times = 0;
    if (setjmp(place) == 0) {
        look();
        times = 1;
        longjmp(place, 1);
    }
    REQUIRE(times == 1);
    leave();
}

static std::atomic<long> caught;
static thread_local volatile sig_atomic_t caught_here;
static void handler(int) {
    // A handler runs on its own thread, and outside of sections that others run.
    if (id && (!pthread_equal(self, pthread_self()) || kernel_id() != id))
        std::_Exit(3);
    caught_here = caught_here + 1;
    caught++;
}

// (From its first handler of a fault on, a program delegates nothing.)
static void faults() {
    enter();
    look();
    static thread_local sigjmp_buf place;
    struct sigaction action = {}, before;
    if (mine % 32 == 0) {
        action.sa_handler = [](int) { siglongjmp(place, 1); };
        action.sa_flags = SA_NODEFER;
        sigaction(SIGSEGV, &action, &before);
        if (sigsetjmp(place, 0) == 0)
            *static_cast<volatile int *>(nullptr) = 1;
    }
    leave();
}

// The last user of an object frees it with its mutex.
struct Object {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int users;
    long filler[64];
};
static std::atomic<Object *> shared[4];
static pthread_barrier_t barrier;
static int threads;
static void frees() {
    int which = static_cast<int>(mine++ % 4);
    pthread_barrier_wait(&barrier);
    if (mine && !shared[which].load()) {
        auto *made = new Object;
        made->users = threads;
        Object *none = nullptr;
        if (!shared[which].compare_exchange_strong(none, made))
            delete made;
    }
    Object *object = shared[which];
    pthread_mutex_lock(&object->mutex);
    count++;
    elsewhere += kernel_id() != id;
    dwell(3000);
    bool last = --object->users == 0;
    if (last)
        shared[which] = nullptr;
    pthread_mutex_unlock(&object->mutex);
    at_home();
    if (last) {
        REQUIRE(pthread_mutex_destroy(&object->mutex) == 0);
        std::memset(static_cast<void *>(object), 0x5a, sizeof *object);
        std::free(std::malloc(sizeof *object));
        for (size_t i = 0; i < sizeof *object; i++)
            REQUIRE(reinterpret_cast<unsigned char *>(object)[i] == 0x5a);
        dwell(3000);
        for (size_t i = 0; i < sizeof *object; i++)
            REQUIRE(reinterpret_cast<unsigned char *>(object)[i] == 0x5a);
        delete object;
    }
}

// The holder stops the world: all others' handlers run before it goes on.
static std::atomic<int> stopped;
static std::atomic<bool> goes_on{true};
static std::vector<pthread_t> everybody;
static std::atomic<bool> is_complete;
static void stop_handler(int) {
    stopped++;
    while (!goes_on)
        sched_yield();
    stopped--;
}
static std::atomic<int> running;
static void stops() {
    enter();
    look();
    if (mine % 64 == 0 && running == threads && is_complete) {
        goes_on = false;
        int others = 0;
        for (auto &thread : everybody)
            if (!pthread_equal(thread, pthread_self()))
                others += pthread_kill(thread, SIGRTMIN + 1) == 0;
        while (stopped < others)
            sched_yield();
        goes_on = true;
        while (stopped)
            sched_yield();
        caught++;
    }
    leave();
}

// Handlers of fork that hold a mutex, and one that runs behind the library's.
static void before_fork() { enter(); look(); }
static void after_fork() { pthread_mutex_unlock(&mutex); }
static void atforks() {
    plain();
    if (mine % 32 == 0) {
        pid_t child = fork();
        if (child == 0) {
            id = kernel_id();
            for (int i = 0; i < 20; i++)
                plain();
            std::_Exit(7);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

// A mutex whose owner has ended, taken in a section.
static pthread_mutex_t robust;
static std::atomic<long> dead;
static void *dies(void *) {
    pthread_mutex_lock(&robust);
    return nullptr;
}
static void robusts() {
    enter();
    look();
    int error = pthread_mutex_lock(&robust);
    if (error == EOWNERDEAD) {
        dead++;
        REQUIRE(pthread_mutex_consistent(&robust) == 0);
    } else {
        REQUIRE(error == 0);
    }
    pthread_mutex_unlock(&robust);
    bool kills = mine % 256 == 0;
    leave();
    pthread_t thread;
    if (kills && pthread_create(&thread, nullptr, dies, nullptr) == 0)
        pthread_join(thread, nullptr);
}

// Sections of a rewritten program, of the same mutex: our library locks it for them.
extern "C" void lw_section(pthread_mutex_t *, void (*)(void *), void *) __attribute__((weak));
static void sections() {
    if (mine % 2 || !lw_section)
        return plain();
    mine++;
    lw_section(&mutex, [](void *) { count++, dwell(); }, nullptr);
    at_home();
}

static void *run(void *);
static void (*step)();
static double length = 1;

// What may not be sent: a thread that can be cancelled at any time, one with restartable sequences, and one whose GS base no other has.
static void stays() {
    enter();
    look();
    if (mine > 100) // a sequence is seen at the first lock, unless the kernel has just cleared its pointer
        at_home();
    leave();
}

static void *is_async(void *) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    return run(nullptr);
}

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
static void *has_sequences(void *) {
    // A sequence of no instructions, which is never interrupted. The kernel clears the pointer now and then; programs set it each time.
    static const uint32_t signature[2] = {RSEQ_SIG, 0};
    static struct rseq_cs sequence = {};
    sequence.abort_ip = reinterpret_cast<uintptr_t>(&signature[1]);
    auto *area = reinterpret_cast<struct rseq *>(static_cast<char *>(__builtin_thread_pointer()) + __rseq_offset);
    self = pthread_self();
    id = kernel_id();
    for (double end = now() + length; now() < end;) {
        area->rseq_cs = reinterpret_cast<uintptr_t>(&sequence);
        step();
    }
    area->rseq_cs = 0;
    return nullptr;
}
#endif

static void *has_base(void *) {
    // arch_prctl(ARCH_SET_GS), behind the back of whoever stands in front of libc.
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_arch_prctl), "D"(0x1001), "S"(&self) : "rcx", "r11", "memory");
    REQUIRE(result == 0);
    return run(nullptr);
}

static void kinds() {
    static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    REQUIRE(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
    REQUIRE(pthread_mutex_lock(&checking) == 0 && pthread_mutex_lock(&checking) == EDEADLK);
    dwell();
    REQUIRE(pthread_mutex_unlock(&checking) == 0 && pthread_mutex_unlock(&checking) == EPERM);
    pthread_mutex_unlock(&recursive);
    pthread_mutex_unlock(&recursive);
    plain();
}

static void *run(void *) {
    self = pthread_self();
    id = kernel_id();
    double end = now() + length;
    running++;
    while (now() < end && !stop)
        step();
    running = -1000; // somebody may be about to end
    return nullptr;
}

// A thread that ends with the mutex locked: in a section, until a key's destructor unlocks it.
static pthread_key_t key;
static void *returns(void *) {
    self = pthread_self();
    id = kernel_id();
    for (int i = 0; i < 20; i++)
        plain();
    enter();
    look();
    pthread_setspecific(key, &mutex);
    return nullptr;
}

// A fixed number of steps: the others wait for each.
static void *runs_together(void *) {
    self = pthread_self();
    id = kernel_id();
    for (int i = 0; i < 1000; i++)
        step();
    return nullptr;
}

static void *ends(void *how) {
    self = pthread_self();
    id = kernel_id();
    for (int i = 0; i < 50; i++)
        plain();
    enter();
    look();
    pthread_cleanup_push([](void *) {
        at_home();
        pthread_mutex_unlock(&mutex);
    }, nullptr);
    if (how) {
        pthread_exit(how);
    } else {
        for (;;)
            pthread_testcancel(), dwell(10);
    }
    pthread_cleanup_pop(1);
    return nullptr;
}

static void spawn(int n, void *(*body)(void *), bool signals) {
    std::vector<pthread_t> all(n);
    for (auto &thread : all)
        REQUIRE(pthread_create(&thread, nullptr, body, nullptr) == 0);
    everybody = all;
    is_complete = true;
    double end = now() + length;
    while (signals && now() < end) {
        for (auto &thread : all)
            pthread_kill(thread, SIGUSR1);
        kill(getpid(), SIGUSR2);
        timespec time = {0, 50000};
        nanosleep(&time, nullptr);
    }
    for (auto &thread : all)
        REQUIRE(pthread_join(thread, nullptr) == 0);
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "plain";
    threads = argc > 2 ? std::atoi(argv[2]) : 6;
    length = argc > 3 ? std::atof(argv[3]) : 1;
    self = pthread_self();
    id = kernel_id();
    const struct { const char *name; void (*step)(); } ways[] = {
        {"plain", plain}, {"memory", memory}, {"throws", throws}, {"nested", nested}, {"crossed", crossed},
        {"waits", waits}, {"spins", spins}, {"sleeps", sleeps}, {"asks", asks}, {"forks", forks},
        {"jumps", jumps}, {"signals", memory}, {"faults", faults}, {"frees", frees}, {"kinds", kinds},
        {"stops", stops}, {"atforks", atforks}, {"robusts", robusts}, {"sections", sections},
        {"async", stays}, {"bases", stays}, {"sequences", stays},
        {"exits", nullptr}, {"cancels", nullptr}, {"returns", nullptr},
    };
    for (auto &one : ways)
        if (!std::strcmp(one.name, way))
            step = one.step;
    if (!std::strcmp(way, "exits") || !std::strcmp(way, "cancels")) {
        bool exits = *way == 'e';
        double end = now() + length;
        while (now() < end) {
            std::vector<pthread_t> all(threads);
            for (auto &thread : all)
                REQUIRE(pthread_create(&thread, nullptr, ends, exits ? &thread : nullptr) == 0);
            for (auto &thread : all)
                if (!exits)
                    REQUIRE(pthread_cancel(thread) == 0);
            for (auto &thread : all) {
                void *result;
                REQUIRE(pthread_join(thread, &result) == 0);
                REQUIRE(result == (exits ? static_cast<void *>(&thread) : PTHREAD_CANCELED));
            }
        }
    } else if (!std::strcmp(way, "returns")) {
        pthread_key_create(&key, [](void *held) { pthread_mutex_unlock(static_cast<pthread_mutex_t *>(held)); });
        double end = now() + length;
        while (now() < end)
            spawn(threads, returns, false);
    } else if (step) {
        if (step == atforks)
            pthread_atfork(before_fork, after_fork, after_fork);
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&robust, &attributes);
        struct sigaction stopping = {};
        stopping.sa_handler = stop_handler;
        stopping.sa_flags = SA_RESTART;
        sigaction(SIGRTMIN + 1, &stopping, nullptr);
        bool together = step == frees;
        struct sigaction action = {};
        action.sa_handler = handler;
        action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, nullptr);
        sigaction(SIGUSR2, &action, nullptr);
        pthread_barrier_init(&barrier, nullptr, threads);
        void *(*body)(void *) = together ? runs_together : run;
        if (!std::strcmp(way, "async"))
            body = is_async;
        if (!std::strcmp(way, "bases"))
            body = has_base;
#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
        if (!std::strcmp(way, "sequences"))
            body = has_sequences;
#endif
        spawn(threads, body, !std::strcmp(way, "signals"));
    } else {
        std::fprintf(stderr, "no such way: %s\n", way);
        return 2;
    }
    std::printf("%s: %ld sections, %ld elsewhere, %ld signals\n", way, count, elsewhere.load(), caught.load());
    return 0;
}
