// A library that is opened with RTLD_DEEPBIND. Its constructor starts a thread that waits.
#include "check.h"

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int turn;
    long counter;
};

struct shared deep_shared = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static bool waits, woken;
static pthread_t waiter;

static void *wait_for_it(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    waits = true;
    OK(pthread_cond_broadcast(&c));
    while (!woken)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    waiter = start(wait_for_it, NULL);
    OK(pthread_mutex_lock(&m));
    while (!waits)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
}

int deep_wake(void);
int deep_wake(void)
{
    OK(pthread_mutex_lock(&m));
    woken = true;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    join(waiter);
    return !failures;
}

void deep_turns(struct shared *s, int me, int rounds);
void deep_turns(struct shared *s, int me, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->turn != me) {
            if (i % 2) {
                struct timespec late = in_ms(CLOCK_MONOTONIC, 100000);
                OK(pthread_cond_clockwait(&s->cond, &s->mutex, CLOCK_MONOTONIC, &late));
            } else {
                OK(pthread_cond_wait(&s->cond, &s->mutex));
            }
        }
        s->turn = !me;
        s->counter++;
        OK(pthread_cond_signal(&s->cond));
        OK(pthread_mutex_unlock(&s->mutex));
    }
}

// The program has a function of this name too.
int which(void);
int which(void) { return 2; }

int deep_which(void);
int deep_which(void) { return which(); }
