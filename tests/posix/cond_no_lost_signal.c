// No signal is lost. As in glibc's bug 25847, signals and waits go on for long, mixed with waiters that
// time out, signals without the mutex, and broadcasts to other waiters. A lost signal hangs the program.
// On a busy machine, locks that spin would need minutes for all of it: the work comes in batches, and none starts late.
// whole: yes
// limit: 240
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
enum { CAPACITY = 3, PRODUCERS = 3, CONSUMERS = 3, ITEMS = 1000, BATCHES = 15 };
static long queue[CAPACITY], sum;
static int head, used, consumed;
static _Atomic long timeouts;

static void *produce(void *data)
{
    long base = (intptr_t)data * ITEMS;
    for (long i = 0; i < ITEMS; i++) {
        OK(pthread_mutex_lock(&m));
        while (used == CAPACITY)
            OK(pthread_cond_wait(&not_full, &m));
        queue[(head + used++) % CAPACITY] = base + i;
        bool inside = i & 1;
        if (inside)
            OK(pthread_cond_signal(&not_empty));
        OK(pthread_mutex_unlock(&m));
        if (!inside)
            OK(pthread_cond_signal(&not_empty));
    }
    return NULL;
}

/* Each item wakes exactly one waiter, and none that times out instead: a thread that times out looks at the
 * queue once more, as POSIX demands. */
static void *consume(void *data)
{
    bool hurried = (intptr_t)data;
    for (;;) {
        OK(pthread_mutex_lock(&m));
        while (!used && consumed < PRODUCERS * ITEMS) {
            if (hurried) {
                struct timespec soon = in_ms(CLOCK_REALTIME, 0);
                soon.tv_nsec += 30000;
                if (soon.tv_nsec >= 1000000000) {
                    soon.tv_nsec -= 1000000000;
                    soon.tv_sec++;
                }
                int code = pthread_cond_timedwait(&not_empty, &m, &soon);
                CHECK(code == 0 || code == ETIMEDOUT);
                timeouts += code == ETIMEDOUT;
            } else {
                OK(pthread_cond_wait(&not_empty, &m));
            }
        }
        if (!used) {
            OK(pthread_mutex_unlock(&m));
            return NULL;
        }
        sum += queue[head];
        head = (head + 1) % CAPACITY;
        used--;
        if (++consumed == PRODUCERS * ITEMS)
            OK(pthread_cond_broadcast(&not_empty));
        OK(pthread_cond_signal(&not_full));
        OK(pthread_mutex_unlock(&m));
    }
}

/* The shape of bug 25847: a few threads take turns through one condition variable. Many signals find nobody, so
 * groups of waiters are closed and re-opened all the time. */
static pthread_mutex_t turn_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_cond = PTHREAD_COND_INITIALIZER;
static int credits;
enum { TAKERS = 4, TAKES = 2000, TAKE_BATCHES = 15, ENOUGH_MS = 10000 };

static void *take(void *data)
{
    (void)data;
    for (int i = 0; i < TAKES; i++) {
        OK(pthread_mutex_lock(&turn_mutex));
        while (!credits)
            OK(pthread_cond_wait(&turn_cond, &turn_mutex));
        credits--;
        OK(pthread_mutex_unlock(&turn_mutex));
    }
    return NULL;
}

static void *give(void *data)
{
    (void)data;
    for (int i = 0; i < TAKERS * TAKES / 2; i++) {
        OK(pthread_mutex_lock(&turn_mutex));
        credits++;
        OK(pthread_mutex_unlock(&turn_mutex));
        OK(pthread_cond_signal(&turn_cond));
    }
    return NULL;
}

static void queue_batch(void)
{
    sum = consumed = 0;
    pthread_t threads[PRODUCERS + CONSUMERS];
    for (intptr_t i = 0; i < PRODUCERS; i++)
        threads[i] = start(produce, (void *)i);
    for (intptr_t i = 0; i < CONSUMERS; i++)
        threads[PRODUCERS + i] = start(consume, (void *)(i % 2));
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        join(threads[i]);
    long all = PRODUCERS * ITEMS;
    CHECK(consumed == all && sum == all * (all - 1) / 2);
}

static void turns_batch(void)
{
    pthread_t givers[2], takers[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        takers[i] = start(take, NULL);
    for (int i = 0; i < 2; i++)
        givers[i] = start(give, NULL);
    for (int i = 0; i < TAKERS; i++)
        join(takers[i]);
    for (int i = 0; i < 2; i++)
        join(givers[i]);
    CHECK(credits == 0);
}

int main(void)
{
    struct timespec enough = in_ms(CLOCK_MONOTONIC, ENOUGH_MS);
    for (int i = 0; i < BATCHES && (i == 0 || !has_passed(CLOCK_MONOTONIC, enough)); i++)
        queue_batch();
    printf("all consumed\n");
    enough = in_ms(CLOCK_MONOTONIC, ENOUGH_MS);
    for (int i = 0; i < TAKE_BATCHES && (i == 0 || !has_passed(CLOCK_MONOTONIC, enough)); i++)
        turns_batch();
    printf("no credits left\n");
    OK(pthread_cond_destroy(&turn_cond));
    OK(pthread_cond_destroy(&not_empty));
    OK(pthread_cond_destroy(&not_full));
    return finish();
}
