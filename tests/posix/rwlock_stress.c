// rwlock: 8 threads, every preference, every way to lock, exclusion, no starved writer, memory freed after unlock.
// limit: 180
// counted: yes
#include "check.h"

enum { THREADS = 8, TURNS = 4000 };

struct shared {
    pthread_rwlock_t lock;
    long a, b; /* equal whenever nobody writes */
    atomic_int reading, writing;
    atomic_long wrote;
};

static struct shared s;
static _Thread_local uint64_t seed;

static uint32_t dice(uint32_t sides)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % sides;
}

static void set_up(pthread_rwlock_t *lock, int kind)
{
    pthread_rwlockattr_t attr;
    OK(pthread_rwlockattr_init(&attr));
    OK(pthread_rwlockattr_setkind_np(&attr, kind));
    OK(pthread_rwlock_init(lock, &attr));
}

static int enter(bool write)
{
    struct timespec at;
    switch (dice(6)) {
    case 0:
        return write ? pthread_rwlock_trywrlock(&s.lock) : pthread_rwlock_tryrdlock(&s.lock);
    case 1:
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += dice(200000);
        if (at.tv_nsec >= 1000000000)
            at.tv_sec++, at.tv_nsec -= 1000000000;
        return write ? pthread_rwlock_timedwrlock(&s.lock, &at) : pthread_rwlock_timedrdlock(&s.lock, &at);
    case 2:
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_sec++;
        return write ? pthread_rwlock_clockwrlock(&s.lock, CLOCK_MONOTONIC, &at)
                     : pthread_rwlock_clockrdlock(&s.lock, CLOCK_MONOTONIC, &at);
    default:
        return write ? pthread_rwlock_wrlock(&s.lock) : pthread_rwlock_rdlock(&s.lock);
    }
}

static void *mixed(void *data)
{
    uint32_t share = (uint32_t)((uintptr_t)data & 0xff); /* of writes, in percent */
    seed = (uintptr_t)data * 2654435761u + 1;
    for (int turn = 0; turn < TURNS; turn++) {
        bool write = dice(100) < share;
        int code = enter(write);
        if (code == EBUSY || code == ETIMEDOUT)
            continue;
        OK(code);
        if (write) {
            CHECK(s.writing++ == 0 && s.reading == 0);
            s.a++;
            if (dice(16) == 0)
                sched_yield();
            s.b++;
            s.wrote++;
            s.writing--;
        } else {
            s.reading++;
            CHECK(s.writing == 0);
            long a = s.a;
            if (dice(16) == 0)
                sched_yield();
            CHECK(a == s.b);
            s.reading--;
        }
        OK(pthread_rwlock_unlock(&s.lock));
    }
    return NULL;
}

static void exclusion(int kind, uint32_t share)
{
    memset(&s, 0, sizeof s);
    set_up(&s.lock, kind);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = start(mixed, (void *)(i << 8 | share));
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    CHECK(s.a == s.b && s.a == s.wrote);
    EXPECT(pthread_rwlock_trywrlock(&s.lock), 0);
    EXPECT(pthread_rwlock_unlock(&s.lock), 0);
}

/* Readers whose critical sections overlap, and one writer. */
static atomic_bool stop;

static void *overlapping(void *unused)
{
    while (!stop) {
        OK(pthread_rwlock_rdlock(&s.lock));
        sleep_ms(1);
        OK(pthread_rwlock_unlock(&s.lock));
    }
    return NULL;
}

static void no_starved_writer(void)
{
    set_up(&s.lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    stop = false;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(overlapping, NULL);
    for (int i = 0; i < 50; i++) {
        OK(pthread_rwlock_wrlock(&s.lock));
        OK(pthread_rwlock_unlock(&s.lock));
    }
    stop = true;
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    printf("the writer got through\n");
}

/* The last one frees the lock's page: a thread that touches it after its own unlock crashes. */
struct page {
    pthread_rwlock_t lock;
    int left;
    atomic_int readers_in;
};

enum { ROUNDS = 3000, MEMBERS = 3 };
static struct page *pages[ROUNDS];
static pthread_barrier_t barrier;

static void *last_writer_frees(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        struct page *page = pages[i];
        OK(pthread_rwlock_wrlock(&page->lock));
        bool last = --page->left == 0;
        OK(pthread_rwlock_unlock(&page->lock));
        if (last)
            OK(munmap(page, 4096));
    }
    return NULL;
}

static void *read_first(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        struct page *page = pages[i];
        OK(pthread_rwlock_rdlock(&page->lock));
        page->readers_in++;
        OK(pthread_rwlock_unlock(&page->lock));
    }
    return NULL;
}

static void *then_write_and_free(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        struct page *page = pages[i];
        while (page->readers_in < MEMBERS - 1)
            sched_yield();
        OK(pthread_rwlock_wrlock(&page->lock));
        OK(pthread_rwlock_unlock(&page->lock));
        OK(munmap(page, 4096));
    }
    return NULL;
}

static void unlock_then_free(int kind, void *(*body)(void *), void *(*final)(void *))
{
    for (int i = 0; i < ROUNDS; i++) {
        pages[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages[i] == MAP_FAILED)
            exit(1);
        set_up(&pages[i]->lock, kind);
        pages[i]->left = MEMBERS;
    }
    OK(pthread_barrier_init(&barrier, NULL, MEMBERS));
    pthread_t threads[MEMBERS];
    for (int i = 0; i < MEMBERS; i++)
        threads[i] = start(i ? body : final, NULL);
    for (int i = 0; i < MEMBERS; i++)
        join(threads[i]);
    printf("unlocked, then freed: %d pages\n", ROUNDS);
}

int main(void)
{
    static const int kinds[] = {
        PTHREAD_RWLOCK_PREFER_READER_NP,
        PTHREAD_RWLOCK_PREFER_WRITER_NP,
        PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP,
    };
    for (int i = 0; i < 3; i++) {
        printf("-- preference %d\n", kinds[i]);
        exclusion(kinds[i], 5);
        exclusion(kinds[i], 50);
        exclusion(kinds[i], 95);
        unlock_then_free(kinds[i], last_writer_frees, last_writer_frees);
        unlock_then_free(kinds[i], read_first, then_write_and_free);
    }
    no_starved_writer();
    return finish();
}
