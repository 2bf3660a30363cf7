// A signal handler interrupts pthread_cond_wait and waits on another condition variable itself: each wait ends with its
// own signal. POSIX allows no such handler; glibc survives it.
// limit: 300
// counted: yes
#include "check.h"

enum { WAITERS = 3, ROUNDS = 60 };

struct pair {
    pthread_mutex_t m;
    pthread_cond_t c;
    int tokens, waiting, woken;
};
static struct pair outer = {.m = PTHREAD_MUTEX_INITIALIZER, .c = PTHREAD_COND_INITIALIZER};
static struct pair inner = {.m = PTHREAD_MUTEX_INITIALIZER, .c = PTHREAD_COND_INITIALIZER};
static atomic_int tids[WAITERS];
static int late;

/* Waits for a token; if `also_timed`, first waits until a deadline, which passes. */
static void wait_in(struct pair *p, bool also_timed)
{
    OK(pthread_mutex_lock(&p->m));
    if (also_timed) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 2);
        int code = 0;
        while (code == 0)
            code = pthread_cond_timedwait(&p->c, &p->m, &soon);
        CHECK(code == ETIMEDOUT);
        late++;
    }
    p->waiting++;
    while (!p->tokens)
        OK(pthread_cond_wait(&p->c, &p->m));
    p->tokens--;
    p->woken++;
    OK(pthread_mutex_unlock(&p->m));
}

static void on_signal(int signal)
{
    (void)signal;
    wait_in(&inner, true);
}

static void *waits(void *data)
{
    *(atomic_int *)data = (int)syscall(SYS_gettid);
    wait_in(&outer, false);
    return NULL;
}

static int waiting_in(struct pair *p)
{
    OK(pthread_mutex_lock(&p->m));
    int now = p->waiting;
    OK(pthread_mutex_unlock(&p->m));
    return now;
}

static void give(struct pair *p, bool all)
{
    for (int i = 0; i < WAITERS; i++) {
        OK(pthread_mutex_lock(&p->m));
        p->tokens += all ? WAITERS : 1;
        if (all)
            OK(pthread_cond_broadcast(&p->c));
        else
            OK(pthread_cond_signal(&p->c));
        OK(pthread_mutex_unlock(&p->m));
        if (all)
            break;
    }
}

int main(void)
{
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[WAITERS];
        outer.waiting = inner.waiting = outer.woken = inner.woken = 0;
        for (int i = 0; i < WAITERS; i++) {
            tids[i] = 0;
            threads[i] = start(waits, &tids[i]);
        }
        UNTIL(waiting_in(&outer) == WAITERS);
        for (int i = 0; i < WAITERS; i++)
            UNTIL(is_asleep(tids[i]));
        for (int i = 0; i < WAITERS; i++)
            OK(pthread_kill(threads[i], SIGUSR1));
        UNTIL(waiting_in(&inner) == WAITERS);
        /* The outer wait's signals come during the inner wait, or after it. */
        if (round % 2)
            give(&outer, round % 4 == 1);
        give(&inner, round % 3 == 0);
        if (round % 2 == 0)
            give(&outer, round % 4 == 0);
        for (int i = 0; i < WAITERS; i++)
            join(threads[i]);
        CHECK(outer.woken == WAITERS && inner.woken == WAITERS);
        CHECK(outer.tokens == 0 && inner.tokens == 0);
    }
    CHECK(late == WAITERS * ROUNDS);
    EXPECT(pthread_cond_destroy(&outer.c), 0);
    EXPECT(pthread_cond_destroy(&inner.c), 0);
    EXPECT(pthread_mutex_destroy(&outer.m), 0);
    EXPECT(pthread_mutex_destroy(&inner.m), 0);
    return finish();
}
