// Condition variables: codes, clocks, order of waking, the mutex held on every return.
// whole: yes
// counted: yes
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int waiting, tokens, woken_count, woken[8];

static void timed(const char *name, clockid_t clock, bool by_attribute)
{
    printf("-- %s\n", name);
    pthread_condattr_t attr;
    pthread_cond_t cond;
    OK(pthread_condattr_init(&attr));
    if (by_attribute)
        EXPECT(pthread_condattr_setclock(&attr, clock), 0);
    OK(pthread_cond_init(&cond, &attr));
    OK(pthread_mutex_lock(&m));
    struct timespec past = in_ms(clock, -1000), soon = in_ms(clock, 50);
    struct timespec bad = {soon.tv_sec, 1000000000}, negative = {soon.tv_sec, -1},
                    long_past = {-1, 0}, past_and_bad = {-1, -1};
#define WAIT(time)                                             \
    (by_attribute ? pthread_cond_timedwait(&cond, &m, &(time)) \
                  : pthread_cond_clockwait(&cond, &m, clock, &(time)))
    EXPECT(WAIT(past), ETIMEDOUT);
    EXPECT(WAIT(bad), EINVAL);
    EXPECT(WAIT(negative), EINVAL);
    EXPECT(WAIT(long_past), ETIMEDOUT);
    EXPECT(WAIT(past_and_bad), EINVAL);
    EXPECT(WAIT(soon), ETIMEDOUT);
    CHECK(has_passed(clock, soon));
    EXPECT(elsewhere(try_it, &m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    EXPECT(elsewhere(try_it, &m), 0);
    EXPECT(pthread_cond_destroy(&cond), 0);
}

static void *waiter(void *data)
{
    OK(pthread_mutex_lock(&m));
    waiting++;
    while (!tokens)
        OK(pthread_cond_wait(&c, &m));
    tokens--;
    woken[woken_count++] = (int)(intptr_t)data;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void add_waiter(pthread_t *thread, int number)
{
    *thread = start(waiter, (void *)(intptr_t)number);
    bool waits = false;
    while (!waits) {
        OK(pthread_mutex_lock(&m));
        waits = waiting == number + 1;
        OK(pthread_mutex_unlock(&m));
        sched_yield();
    }
}

static void signals(bool inside)
{
    pthread_t threads[8];
    waiting = woken_count = tokens = 0;
    for (int i = 0; i < 8; i++)
        add_waiter(&threads[i], i);
    for (int i = 0; i < 8; i++) {
        OK(pthread_mutex_lock(&m));
        tokens++;
        if (inside)
            OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        if (!inside)
            OK(pthread_cond_signal(&c));
        for (bool done = false; !done;) {
            OK(pthread_mutex_lock(&m));
            done = woken_count == i + 1;
            OK(pthread_mutex_unlock(&m));
            sched_yield();
        }
    }
    bool all[8] = {0};
    for (int i = 0; i < 8; i++) {
        join(threads[i]);
        all[woken[i]] = true;
    }
    for (int i = 0; i < 8; i++)
        CHECK(all[i]);
    CHECK(tokens == 0);
    printf("8 signals woke %d\n", woken_count);
}

static void broadcast(bool inside)
{
    pthread_t threads[8];
    waiting = woken_count = tokens = 0;
    for (int i = 0; i < 8; i++)
        add_waiter(&threads[i], i);
    OK(pthread_mutex_lock(&m));
    tokens = 8;
    if (inside)
        OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    if (!inside)
        OK(pthread_cond_broadcast(&c));
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    printf("a broadcast woke %d\n", woken_count);
}

/* A barrier of broadcasts: nobody may be left behind, nobody may run ahead. */
enum { PARTIES = 8, ROUNDS = 1500 };
static int arrived, generation;
static _Atomic int round_of[PARTIES];

static void *party(void *data)
{
    int me = (int)(intptr_t)data;
    for (int round = 0; round < ROUNDS; round++) {
        round_of[me] = round;
        OK(pthread_mutex_lock(&m));
        int mine = generation;
        if (++arrived == PARTIES) {
            arrived = 0;
            generation++;
            for (int i = 0; i < PARTIES; i++)
                CHECK(round_of[i] == round);
            OK(pthread_cond_broadcast(&c));
        } else {
            while (generation == mine)
                OK(pthread_cond_wait(&c, &m));
        }
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    EXPECT(pthread_cond_signal(&c), 0);
    EXPECT(pthread_cond_broadcast(&c), 0);
    timed("realtime", CLOCK_REALTIME, true);
    timed("monotonic", CLOCK_MONOTONIC, true);
    timed("clockwait realtime", CLOCK_REALTIME, false);
    timed("clockwait monotonic", CLOCK_MONOTONIC, false);
    pthread_condattr_t attr;
    OK(pthread_condattr_init(&attr));
    EXPECT(pthread_condattr_setclock(&attr, CLOCK_PROCESS_CPUTIME_ID), EINVAL);
    OK(pthread_mutex_lock(&m));
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 10);
    EXPECT(pthread_cond_clockwait(&c, &m, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    OK(pthread_mutex_unlock(&m));

    printf("-- not the holder\n");
    pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    EXPECT(pthread_cond_wait(&c, &checked), EPERM);
    soon = in_ms(CLOCK_REALTIME, 10);
    EXPECT(pthread_cond_timedwait(&c, &checked, &soon), EPERM);
    EXPECT(pthread_mutex_lock(&checked), 0);
    soon = in_ms(CLOCK_REALTIME, 10);
    EXPECT(pthread_cond_timedwait(&c, &checked, &soon), ETIMEDOUT);
    EXPECT(pthread_mutex_lock(&checked), EDEADLK);
    EXPECT(pthread_mutex_unlock(&checked), 0);
    EXPECT(pthread_mutex_destroy(&checked), 0);

    printf("-- waking\n");
    signals(true);
    signals(false);
    broadcast(true);
    broadcast(false);

    pthread_t threads[PARTIES];
    for (intptr_t i = 0; i < PARTIES; i++)
        threads[i] = start(party, (void *)i);
    for (int i = 0; i < PARTIES; i++)
        join(threads[i]);
    printf("%d rounds\n", generation);
    EXPECT(pthread_cond_destroy(&c), 0);
    OK(pthread_cond_init(&c, NULL));
    EXPECT(pthread_cond_destroy(&c), 0);
    return finish();
}
