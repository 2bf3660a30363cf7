// Every kind of mutex x every operation x many threads, for some seconds, with the invariants checked:
// mutual exclusion (plain counters), no lost wake-up (it ends), owner and depth right, no timed wait ends early.
//
//   stress [--seed N] [--ms N] [--threads N] [--kind NAME]
//   stress --order [--seed N] [--ms N]    two threads on two CPUs: is FIFO order kept?
//
// It prints only failures, with the command line that replays them.
#include "../posix/check.h"

static uint64_t seed = 1;
static long ms = 2000, thread_count = 8;
static const char *only = NULL;
static _Atomic bool stop;
static _Atomic uint64_t progress;
static _Atomic long waiting; /* for tokens */
static const char *phase = "start";

static void fail(const char *what)
{
    const char *lock = getenv("LOCKWRIGHT_LOCK");
    fprintf(stderr, "failed: %s, in '%s'; %ld threads wait for tokens\nreplay: LOCKWRIGHT_LOCK=%s stress --seed %llu --ms %ld --threads %ld --kind '%s'\n",
            what, phase, (long)waiting, lock ? lock : "(none)", (unsigned long long)seed, ms, thread_count, phase);
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

enum { LOCKS = 3 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    long a, pad[15], b;
    long tokens, waiters;
    int kind;
} locks[LOCKS];

static struct timespec after_ns(clockid_t clock, long ns)
{
    struct timespec time = in_ms(clock, 0);
    time.tv_nsec += ns;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void work(uint64_t turns)
{
    for (volatile uint64_t i = 0; i < turns; i++)
        ;
}

/* Takes a lock in one of the possible ways; `false` if it wasn't free or time was up. */
static bool take(int which, uint64_t dice)
{
    pthread_mutex_t *m = &locks[which].mutex;
    struct timespec deadline;
    int code;
    switch (dice % 8) {
    case 0:
        code = pthread_mutex_trylock(m);
        MUST(code == 0 || code == EBUSY);
        return code == 0;
    case 1:
        deadline = after_ns(CLOCK_REALTIME, (long)(dice >> 8) % 200000);
        code = pthread_mutex_timedlock(m, &deadline);
        MUST(code == 0 || code == ETIMEDOUT);
        MUST(code == 0 || has_passed(CLOCK_REALTIME, deadline));
        return code == 0;
    case 2:
        deadline = after_ns(CLOCK_MONOTONIC, (long)(dice >> 8) % 200000);
        code = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &deadline);
        MUST(code == 0 || code == ETIMEDOUT);
        MUST(code == 0 || has_passed(CLOCK_MONOTONIC, deadline));
        return code == 0;
    default:
        MUST(pthread_mutex_lock(m) == 0);
        return true;
    }
}

/* May the calling thread wait for a token? Not if all others do: then nobody would leave one. */
static bool may_wait(void)
{
    if (waiting++ < thread_count - 1)
        return true;
    waiting--;
    return false;
}

static void *body(void *data)
{
    uint64_t state = seed * 1000003 + (uint64_t)(intptr_t)data;
    while (!stop) {
        uint64_t dice = next(&state);
        int which = (int)(dice >> 60) % LOCKS;
        pthread_mutex_t *m = &locks[which].mutex;
        if (!take(which, dice))
            continue;
        progress++;
        MUST(is_owner(m));
        MUST(locks[which].a == locks[which].b);
        locks[which].a++;
        work((dice >> 16) % 64);
        if ((dice >> 24) % 512 == 0)
            usleep(50);
        locks[which].b++;
        MUST(locks[which].a == locks[which].b);
        if (locks[which].kind == PTHREAD_MUTEX_RECURSIVE && (dice >> 33) % 4 == 0) {
            MUST(pthread_mutex_lock(m) == 0);
            MUST(pthread_mutex_trylock(m) == 0);
            MUST(pthread_mutex_unlock(m) == 0);
            MUST(pthread_mutex_unlock(m) == 0);
        } else if (locks[which].kind == PTHREAD_MUTEX_ERRORCHECK && (dice >> 33) % 4 == 0) {
            MUST(pthread_mutex_lock(m) == EDEADLK);
        } else if ((dice >> 33) % 4 == 1) {
            MUST(pthread_mutex_trylock(m) == (locks[which].kind == PTHREAD_MUTEX_RECURSIVE ? 0 : EBUSY));
            if (locks[which].kind == PTHREAD_MUTEX_RECURSIVE)
                MUST(pthread_mutex_unlock(m) == 0);
        }
        /* Wait for a token, or leave one: nobody may wait forever while tokens are left. (One thread always leaves some.) */
        if ((dice >> 40) % 8 == 0 && locks[which].waiters < thread_count / 2 && may_wait()) {
            locks[which].waiters++;
            while (!locks[which].tokens && !stop) {
                if ((dice >> 44) % 2) {
                    struct timespec soon = after_ns(CLOCK_REALTIME, 100000);
                    int code = pthread_cond_timedwait(&locks[which].cond, m, &soon);
                    MUST(code == 0 || code == ETIMEDOUT);
                    if (code == ETIMEDOUT)
                        MUST(has_passed(CLOCK_REALTIME, soon));
                } else {
                    MUST(pthread_cond_wait(&locks[which].cond, m) == 0);
                }
                MUST(is_owner(m));
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
            bool inside = (dice >> 45) % 2, all = (dice >> 46) % 8 == 0;
            if (wake && inside)
                MUST((all ? pthread_cond_broadcast : pthread_cond_signal)(&locks[which].cond) == 0);
            MUST(pthread_mutex_unlock(m) == 0);
            if (wake && !inside)
                MUST((all ? pthread_cond_broadcast : pthread_cond_signal)(&locks[which].cond) == 0);
        }
        work((dice >> 50) % 128);
    }
    return NULL;
}

/* If no thread makes progress for long, one waits for a wake-up that was lost. */
static void watch(long for_ms)
{
    struct timespec end = in_ms(CLOCK_MONOTONIC, for_ms);
    uint64_t seen = progress;
    int still = 0;
    while (!has_passed(CLOCK_MONOTONIC, end)) {
        sleep_ms(20);
        still = progress == seen ? still + 1 : 0;
        seen = progress;
        if (still >= 500)
            fail("no progress for 10 s");
    }
}

static void run(const char *name, int kind, long for_ms)
{
    if (only && strcmp(only, name) != 0)
        return;
    phase = name;
    stop = false;
    for (int i = 0; i < LOCKS; i++) {
        memset(&locks[i], 0, sizeof locks[i]);
        init_kind(&locks[i].mutex, kind);
        OK(pthread_cond_init(&locks[i].cond, NULL));
        locks[i].kind = kind;
    }
    pthread_t threads[256];
    for (intptr_t i = 0; i < thread_count; i++)
        threads[i] = start(body, (void *)i);
    watch(for_ms);
    stop = true;
    for (int i = 0; i < LOCKS; i++) {
        MUST(pthread_mutex_lock(&locks[i].mutex) == 0);
        MUST(pthread_cond_broadcast(&locks[i].cond) == 0);
        MUST(pthread_mutex_unlock(&locks[i].mutex) == 0);
    }
    for (int i = 0; i < thread_count; i++) {
        struct timespec late = in_ms(CLOCK_REALTIME, 20000);
        if (pthread_timedjoin_np(threads[i], NULL, &late) != 0)
            fail("a thread does not end");
    }
    for (int i = 0; i < LOCKS; i++) {
        MUST(locks[i].waiters == 0 && locks[i].a == locks[i].b);
        MUST(pthread_cond_destroy(&locks[i].cond) == 0);
        MUST(pthread_mutex_destroy(&locks[i].mutex) == 0);
    }
}

/* Two threads on two CPUs. While one holds the lock, the other asks for it; once the other surely waits, the
 * holder releases the lock and asks again at once. In FIFO order the other is always first. */
static pthread_mutex_t order_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic long asked, announced_at;
static _Atomic int asker_id;
static long given;

static long nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *ask(void *data)
{
    (void)data;
    asker_id = (int)syscall(SYS_gettid);
    while (!stop) {
        announced_at = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        asked++;
        OK(pthread_mutex_lock(&order_mutex));
        given++;
        OK(pthread_mutex_unlock(&order_mutex));
        work(200);
    }
    return NULL;
}

/* Does the other thread wait? It surely does if it has asked and sleeps. It should if it has asked and then run
 * for 300 us; but its clock also counts the time that the hypervisor takes away. */
enum sign { UNSURE, AWAKE, ASLEEP };

static enum sign waits(clockid_t its_clock)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", asker_id);
    for (int turn = 0; turn < 2000; turn++) {
        if (asked > given && nanoseconds(its_clock) > announced_at + 300000)
            return AWAKE;
        FILE *file = fopen(path, "r");
        if (file) {
            size_t length = fread(line, 1, sizeof line - 1, file);
            line[length] = 0;
            fclose(file);
            const char *state = strstr(line, ") ");
            if (asked > given && state && state[2] == 'S')
                return ASLEEP;
        }
    }
    return UNSURE;
}

static int order(void)
{
    phase = "order";
    long kept[3] = {0}, passed[3] = {0}, last_passed = 0;
    pthread_t other = start(ask, NULL);
    clockid_t its_clock;
    OK(pthread_getcpuclockid(other, &its_clock));
    UNTIL(asker_id != 0);
    struct timespec end = in_ms(CLOCK_MONOTONIC, ms), at_last = in_ms(CLOCK_MONOTONIC, ms + 30000);
    /* Longer, if that was too short to see much: the machine may have stalled, or be busy. */
    while (!has_passed(CLOCK_MONOTONIC, end) ||
           (kept[AWAKE] + kept[ASLEEP] < 200 && !has_passed(CLOCK_MONOTONIC, at_last))) {
        OK(pthread_mutex_lock(&order_mutex));
        long before = given;
        enum sign sign = waits(its_clock);
        long which = asked;
        OK(pthread_mutex_unlock(&order_mutex));
        OK(pthread_mutex_lock(&order_mutex));
        if (given > before) {
            kept[sign]++;
        } else if (sign != AWAKE || which != last_passed) {
            passed[sign]++; /* a thread that stalls before it waits counts once, however long it stalls */
            last_passed = which;
        }
        OK(pthread_mutex_unlock(&order_mutex));
    }
    stop = true;
    join(other);
    printf("awake %ld kept, awake %ld passed, asleep %ld kept, asleep %ld passed, %ld unsure\n", kept[AWAKE],
           passed[AWAKE], kept[ASLEEP], passed[ASLEEP], kept[UNSURE] + passed[UNSURE]);
    return 0;
}

int main(int argc, char **argv)
{
    bool ordered = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--order") == 0) {
            ordered = true;
            continue;
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--ms") == 0) {
            ms = atol(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            thread_count = atol(value);
        } else if (strcmp(argv[i], "--kind") == 0) {
            only = value;
        } else {
            fprintf(stderr, "error: unknown flag '%s'\n", argv[i]);
            return 2;
        }
        i++;
    }
    if (thread_count < 1 || thread_count > 256 || ms < 1) {
        fprintf(stderr, "error: 1 to 256 threads, 1 ms or more\n");
        return 2;
    }
    if (ordered)
        return order();
    long each = only ? ms : ms / 4;
    run("normal", PTHREAD_MUTEX_NORMAL, each);
    run("recursive", PTHREAD_MUTEX_RECURSIVE, each);
    run("errorcheck", PTHREAD_MUTEX_ERRORCHECK, each);
    run("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, each);
    return failures != 0;
}
