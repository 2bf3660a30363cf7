// timedlock and clocklock: codes, clocks, bad times, and no return before the deadline.
// whole: yes
#include "check.h"

static pthread_mutex_t m;
static atomic_int ready, let_go;

static int timed(clockid_t clock, const struct timespec *deadline)
{
    return clock == -1 ? pthread_mutex_timedlock(&m, deadline)
                       : pthread_mutex_clocklock(&m, clock, deadline);
}

/* Holds the mutex until told, and a while longer, so that a thread that asks meanwhile has to wait. */
static void *hold_until_told(void *data)
{
    OK(pthread_mutex_lock(&m));
    ready = 1;
    while (!let_go)
        sleep_ms(1);
    sleep_ms(50);
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static pthread_t held(void)
{
    ready = let_go = 0;
    pthread_t holder = start(hold_until_told, NULL);
    while (!ready)
        sched_yield();
    return holder;
}

static void one_clock(const char *name, clockid_t clock)
{
    clockid_t real = clock == -1 ? CLOCK_REALTIME : clock;
    printf("-- %s\n", name);
    struct timespec past = in_ms(real, -1000), soon = in_ms(real, 30000);
    struct timespec bad = {soon.tv_sec, 1000000000}, negative = {soon.tv_sec, -1};
    struct timespec before_epoch = {-1, 0}, long_past = {-1, -1}, past_and_bad = {-1, 1000000000};

    /* Free: the deadline is not even looked at. */
    EXPECT(timed(clock, &past), 0);
    EXPECT(pthread_mutex_unlock(&m), 0);
    EXPECT(timed(clock, &bad), 0);
    EXPECT(pthread_mutex_unlock(&m), 0);

    pthread_t holder = held();
    EXPECT(timed(clock, &bad), EINVAL);
    EXPECT(timed(clock, &negative), EINVAL);
    EXPECT(timed(clock, &past), ETIMEDOUT);
    /* Before the epoch, nanoseconds aren't looked at. */
    EXPECT(timed(clock, &before_epoch), ETIMEDOUT);
    EXPECT(timed(clock, &long_past), ETIMEDOUT);
    EXPECT(timed(clock, &past_and_bad), ETIMEDOUT);
    struct timespec short_wait = in_ms(real, 50);
    EXPECT(timed(clock, &short_wait), ETIMEDOUT);
    CHECK(has_passed(real, short_wait));
    let_go = 1;
    EXPECT(timed(clock, &soon), 0);
    CHECK(!has_passed(real, soon));
    EXPECT(pthread_mutex_unlock(&m), 0);
    join(holder);
}

/* Threads that time out all the time must not make the others lose a wake-up. */
static _Atomic long acquired, timed_out;
static long inside;

static void *hurried(void *data)
{
    (void)data;
    for (int i = 0; i < 2000; i++) {
        struct timespec deadline = in_ms(CLOCK_REALTIME, 0);
        deadline.tv_nsec += i % 50 * 1000;
        if (deadline.tv_nsec >= 1000000000) {
            deadline.tv_nsec -= 1000000000;
            deadline.tv_sec++;
        }
        int code = pthread_mutex_timedlock(&m, &deadline);
        if (code == ETIMEDOUT) {
            timed_out++;
            continue;
        }
        CHECK(code == 0);
        inside++;
        acquired++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *patient(void *data)
{
    (void)data;
    for (int i = 0; i < 5000; i++) {
        OK(pthread_mutex_lock(&m));
        inside++;
        for (volatile int j = 0; j < 300; j++)
            ;
        acquired++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    init_kind(&m, PTHREAD_MUTEX_NORMAL);
    one_clock("timedlock", -1);
    one_clock("clocklock realtime", CLOCK_REALTIME);
    one_clock("clocklock monotonic", CLOCK_MONOTONIC);
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 1000);
    EXPECT(pthread_mutex_clocklock(&m, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    EXPECT(pthread_mutex_clocklock(&m, 12345, &soon), EINVAL);

    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        threads[i] = start(i % 2 ? hurried : patient, NULL);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    CHECK(inside == acquired);
    CHECK(acquired + timed_out == 3 * 2000 + 3 * 5000);

    /* A locked normal mutex, locked again by its holder, times out. */
    OK(pthread_mutex_lock(&m));
    soon = in_ms(CLOCK_REALTIME, 30);
    EXPECT(pthread_mutex_timedlock(&m, &soon), ETIMEDOUT);
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_destroy(&m));

    printf("-- errorcheck\n");
    init_kind(&m, PTHREAD_MUTEX_ERRORCHECK);
    soon = in_ms(CLOCK_REALTIME, 1000);
    EXPECT(pthread_mutex_timedlock(&m, &soon), 0);
    EXPECT(pthread_mutex_timedlock(&m, &soon), EDEADLK);
    EXPECT(pthread_mutex_clocklock(&m, CLOCK_REALTIME, &soon), EDEADLK);
    EXPECT(pthread_mutex_unlock(&m), 0);
    OK(pthread_mutex_destroy(&m));

    printf("-- recursive\n");
    init_kind(&m, PTHREAD_MUTEX_RECURSIVE);
    soon = in_ms(CLOCK_REALTIME, 1000);
    EXPECT(pthread_mutex_timedlock(&m, &soon), 0);
    EXPECT(pthread_mutex_timedlock(&m, &soon), 0);
    EXPECT(pthread_mutex_unlock(&m), 0);
    EXPECT(elsewhere(try_it, &m), EBUSY);
    EXPECT(pthread_mutex_unlock(&m), 0);
    EXPECT(elsewhere(try_it, &m), 0);
    OK(pthread_mutex_destroy(&m));
    return finish();
}
