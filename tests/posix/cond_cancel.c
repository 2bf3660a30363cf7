// 1200 waiters are cancelled in pthread_cond_wait, mixed with signals: each cleanup handler finds its mutex
// held, no signal for the others is lost, and the condition variable can be destroyed at the end.
// limit: 90
// counted: yes
#include "check.h"

static pthread_mutex_t m;
static pthread_cond_t c;
static long inside, cleaned, woken;
static int tokens, waiting;
static bool checked_kind;

static void clean(void *data)
{
    (void)data;
    /* We hold the mutex: nobody else gets it, and its owner field names us. */
    CHECK(is_owner(&m));
    if (checked_kind)
        CHECK(pthread_mutex_lock(&m) == EDEADLK);
    long before = inside;
    inside = before + 1;
    cleaned++;
    CHECK(inside == before + 1);
    OK(pthread_mutex_unlock(&m));
}

static void *waiter(void *data)
{
    bool timed = (intptr_t)data & 1;
    OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(clean, NULL);
    waiting++;
    while (!tokens) {
        if (timed) {
            struct timespec later = in_ms(CLOCK_REALTIME, 60000);
            OK(pthread_cond_timedwait(&c, &m, &later));
        } else {
            OK(pthread_cond_wait(&c, &m));
        }
    }
    tokens--;
    woken++;
    pthread_cleanup_pop(0);
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

/* A wait also acts on a cancellation request that came before it. */
static void *cancelled_before(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(clean, NULL);
    OK(pthread_cancel(pthread_self()));
    OK(pthread_cond_wait(&c, &m));
    CHECK(!"reached");
    pthread_cleanup_pop(0);
    return NULL;
}

/* With cancellation disabled, a request stays pending. */
static void *not_cancellable(void *data)
{
    (void)data;
    int old;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    OK(pthread_mutex_lock(&m));
    waiting++;
    while (!tokens)
        OK(pthread_cond_wait(&c, &m));
    tokens--;
    OK(pthread_mutex_unlock(&m));
    OK(pthread_setcancelstate(old, NULL));
    pthread_testcancel();
    return NULL;
}

static void until_waiting(int count)
{
    for (bool all = false; !all;) {
        OK(pthread_mutex_lock(&m));
        all = waiting == count;
        OK(pthread_mutex_unlock(&m));
        sched_yield();
    }
}

static void rounds(int kind)
{
    checked_kind = kind == PTHREAD_MUTEX_ERRORCHECK;
    init_kind(&m, kind);
    OK(pthread_cond_init(&c, NULL));
    enum { THREADS = 20, ROUNDS = 40 };
    long cancelled = 0, returned = 0;
    cleaned = woken = inside = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        waiting = tokens = 0;
        for (intptr_t i = 0; i < THREADS; i++)
            threads[i] = start(waiter, (void *)i);
        if (round % 4)
            until_waiting(THREADS);
        /* Ten threads are cancelled while ten tokens are signalled. A thread that gets both may act on either. */
        for (int i = 0; i < THREADS; i += 2) {
            OK(pthread_cancel(threads[i + round % 2]));
            OK(pthread_mutex_lock(&m));
            tokens++;
            OK(pthread_mutex_unlock(&m));
            OK(pthread_cond_signal(&c));
        }
        for (int i = 0; i < THREADS; i++) {
            /* A thread that got neither needs a token and a signal of its own to end. */
            for (int turn = 0;; turn++) {
                void *result;
                struct timespec soon = in_ms(CLOCK_REALTIME, 2);
                int code = pthread_timedjoin_np(threads[i], &result, &soon);
                if (code == 0) {
                    *(result == PTHREAD_CANCELED ? &cancelled : &returned) += 1;
                    break;
                }
                OK(pthread_mutex_lock(&m));
                if (!tokens)
                    tokens++;
                OK(pthread_mutex_unlock(&m));
                OK(pthread_cond_signal(&c));
                if (turn == 5000) {
                    CHECK(!"a waiter is stuck");
                    exit(finish());
                }
            }
        }
    }
    CHECK(cancelled + returned == THREADS * ROUNDS);
    CHECK(cancelled == cleaned && returned == woken && cancelled > 0);
    printf("kind %d: all %d ended\n", kind, (int)(cancelled + returned));
    EXPECT(pthread_cond_destroy(&c), 0);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

/* 1200 waiters, all cancelled, with nobody signalling. */
static void only_cancelled(void)
{
    checked_kind = false;
    init_kind(&m, PTHREAD_MUTEX_NORMAL);
    OK(pthread_cond_init(&c, NULL));
    cleaned = 0;
    for (int round = 0; round < 12; round++) {
        pthread_t threads[100];
        waiting = tokens = 0;
        for (intptr_t i = 0; i < 100; i++)
            threads[i] = start(waiter, (void *)i);
        if (round % 2)
            until_waiting(100);
        for (int i = 0; i < 100; i++)
            OK(pthread_cancel(threads[i]));
        for (int i = 0; i < 100; i++)
            CHECK(join(threads[i]) == PTHREAD_CANCELED);
    }
    printf("most cleaned: %d\n", cleaned > 600);
    EXPECT(pthread_cond_destroy(&c), 0);

    OK(pthread_cond_init(&c, NULL));
    cleaned = 0;
    CHECK(join(start(cancelled_before, NULL)) == PTHREAD_CANCELED);
    CHECK(cleaned == 1);
    waiting = tokens = 0;
    pthread_t thread = start(not_cancellable, NULL);
    until_waiting(1);
    OK(pthread_cancel(thread));
    sleep_ms(20);
    OK(pthread_mutex_lock(&m));
    tokens = 1;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    CHECK(join(thread) == PTHREAD_CANCELED);
    CHECK(tokens == 0);
    EXPECT(elsewhere(try_it, &m), 0);
    EXPECT(pthread_cond_destroy(&c), 0);
    EXPECT(pthread_mutex_destroy(&m), 0);
}

int main(void)
{
    rounds(PTHREAD_MUTEX_NORMAL);
    rounds(PTHREAD_MUTEX_ERRORCHECK);
    only_cancelled();
    return finish();
}
