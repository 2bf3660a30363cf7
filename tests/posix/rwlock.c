// rwlock: codes, preferences, clocks and bad times, process-shared locks.
// counted: yes
#include "check.h"

static const int kinds[] = {
    PTHREAD_RWLOCK_PREFER_READER_NP,
    PTHREAD_RWLOCK_PREFER_WRITER_NP,
    PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP,
};
static const char *names[] = {"readers", "writers", "writers strictly"};

static pthread_rwlock_t l;
static char order[8];
static atomic_int arrived, place; /* arrived: its thread id. */

static void init(int kind, int shared)
{
    pthread_rwlockattr_t attr;
    OK(pthread_rwlockattr_init(&attr));
    OK(pthread_rwlockattr_setkind_np(&attr, kind));
    OK(pthread_rwlockattr_setpshared(&attr, shared));
    OK(pthread_rwlock_init(&l, &attr));
    OK(pthread_rwlockattr_destroy(&attr));
}

static int unlock(void) { return pthread_rwlock_unlock(&l); }

static int read_once(void *unused)
{
    int code = pthread_rwlock_tryrdlock(&l);
    if (code == 0)
        OK(unlock());
    return code;
}

static int write_once(void *unused)
{
    int code = pthread_rwlock_trywrlock(&l);
    if (code == 0)
        OK(unlock());
    return code;
}

static void *reader(void *unused)
{
    arrived = gettid();
    OK(pthread_rwlock_rdlock(&l));
    order[place++] = 'r';
    OK(unlock());
    return NULL;
}

static void *writer(void *unused)
{
    arrived = gettid();
    OK(pthread_rwlock_wrlock(&l));
    order[place++] = 'w';
    OK(unlock());
    return NULL;
}

/* Starts a thread that will wait for the lock, and lets it fall asleep, or end if it needn't wait. */
static pthread_t waiting(void *(*body)(void *))
{
    arrived = 0;
    pthread_t thread = start(body, NULL);
    UNTIL(arrived);
    UNTIL(is_asleep(arrived));
    sleep_ms(10);
    return thread;
}

static void codes(void)
{
    EXPECT(pthread_rwlock_rdlock(&l), 0);
    EXPECT(pthread_rwlock_rdlock(&l), 0);
    EXPECT(elsewhere(read_once, NULL), 0);
    EXPECT(elsewhere(write_once, NULL), EBUSY);
    EXPECT(unlock(), 0);
    EXPECT(elsewhere(write_once, NULL), EBUSY);
    EXPECT(unlock(), 0);
    EXPECT(elsewhere(write_once, NULL), 0);
    EXPECT(pthread_rwlock_wrlock(&l), 0);
    EXPECT(elsewhere(read_once, NULL), EBUSY);
    EXPECT(elsewhere(write_once, NULL), EBUSY);
    EXPECT(pthread_rwlock_tryrdlock(&l), EBUSY);
    EXPECT(pthread_rwlock_trywrlock(&l), EBUSY);
    EXPECT(pthread_rwlock_rdlock(&l), EDEADLK);
    EXPECT(pthread_rwlock_wrlock(&l), EDEADLK);
    EXPECT(unlock(), 0);
    EXPECT(pthread_rwlock_trywrlock(&l), 0);
    EXPECT(unlock(), 0);
}

/* A writer waits for a reader: may another reader join? May the same reader lock again? */
static void joining(int kind)
{
    bool strictly = kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
    place = 0;
    EXPECT(pthread_rwlock_rdlock(&l), 0);
    pthread_t w = waiting(writer);
    int joined = elsewhere(read_once, NULL);
    printf("a reader beside a waiting writer: %s\n", error_name(joined));
    CHECK(joined == (strictly ? EBUSY : 0));
    if (!strictly) {
        EXPECT(pthread_rwlock_rdlock(&l), 0);
        EXPECT(unlock(), 0);
    }
    EXPECT(unlock(), 0);
    join(w);
    EXPECT(elsewhere(write_once, NULL), 0);
}

/* A reader and a writer wait for a writer: who goes first? */
static void first(int kind)
{
    place = 0;
    memset(order, 0, sizeof order);
    EXPECT(pthread_rwlock_wrlock(&l), 0);
    pthread_t r = waiting(reader), w = waiting(writer);
    EXPECT(unlock(), 0);
    join(r);
    join(w);
    printf("first goes %c\n", order[0]);
    CHECK(order[0] == (kind == PTHREAD_RWLOCK_PREFER_READER_NP ? 'r' : 'w'));
}

/* A waiting writer gives up: the readers behind it go on. */
static struct timespec soon;

static void *impatient(void *unused)
{
    arrived = gettid();
    EXPECT(pthread_rwlock_timedwrlock(&l, &soon), ETIMEDOUT);
    return NULL;
}

static void giving_up(void)
{
    place = 0;
    soon = in_ms(CLOCK_REALTIME, 300);
    EXPECT(pthread_rwlock_rdlock(&l), 0);
    pthread_t w = waiting(impatient), r = waiting(reader);
    join(w);
    join(r); /* We still hold it. */
    CHECK(place == 1);
    EXPECT(unlock(), 0);
    EXPECT(elsewhere(write_once, NULL), 0);
}

static int (*const timed[])(pthread_rwlock_t *, const struct timespec *) = {
    pthread_rwlock_timedrdlock, pthread_rwlock_timedwrlock};
static int (*const clocked[])(pthread_rwlock_t *, clockid_t, const struct timespec *) = {
    pthread_rwlock_clockrdlock, pthread_rwlock_clockwrlock};

static int wait_until(void *data)
{
    int which = (int)(intptr_t)data;
    clockid_t clock = which & 4 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct timespec at = in_ms(clock, 30);
    int code = which & 2 ? clocked[which & 1](&l, clock, &at) : timed[which & 1](&l, &at);
    CHECK(has_passed(clock, at));
    return code;
}

static int wait_badly(void *data)
{
    int which = (int)(intptr_t)data;
    struct timespec far = in_ms(CLOCK_REALTIME, 30000), bad = {far.tv_sec, 1000000000},
                    negative = {far.tv_sec, -1}, past = {-1, 0}, past_and_bad = {-1, -1};
    EXPECT(timed[which](&l, &bad), EINVAL);
    EXPECT(timed[which](&l, &negative), EINVAL);
    EXPECT(timed[which](&l, &past), ETIMEDOUT);
    EXPECT(timed[which](&l, &past_and_bad), EINVAL);
    EXPECT(clocked[which](&l, CLOCK_PROCESS_CPUTIME_ID, &far), EINVAL);
    return 0;
}

static void times(void)
{
    EXPECT(pthread_rwlock_wrlock(&l), 0);
    for (intptr_t which = 0; which < 8; which++)
        if (which < 4 || which & 2)
            EXPECT(elsewhere(wait_until, (void *)which), ETIMEDOUT);
    for (intptr_t which = 0; which < 2; which++)
        EXPECT(elsewhere(wait_badly, (void *)which), 0);
    EXPECT(unlock(), 0);
    struct timespec past = {-1, 0}; /* The lock is free, so the deadline does not matter. */
    EXPECT(pthread_rwlock_timedwrlock(&l, &past), 0);
    EXPECT(unlock(), 0);
    EXPECT(pthread_rwlock_clockrdlock(&l, CLOCK_MONOTONIC, &past), 0);
    EXPECT(unlock(), 0);
    EXPECT(elsewhere(write_once, NULL), 0);
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        for (int shared = 0; shared < 2; shared++) {
            printf("-- prefer %s, %s\n", names[i], shared ? "process-shared" : "private");
            init(kinds[i], shared);
            codes();
            joining(kinds[i]);
            first(kinds[i]);
            times();
            if (!shared)
                giving_up();
            EXPECT(pthread_rwlock_destroy(&l), 0);
        }
    pthread_rwlock_t zero = PTHREAD_RWLOCK_INITIALIZER,
                     strict = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    l = zero;
    codes();
    l = strict;
    codes();
    joining(kinds[2]);
    return finish();
}
