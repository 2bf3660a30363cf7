// A waiter that times out must not swallow a signal meant for another waiter. Each round has one patient waiter, one
// hurried waiter and one signal: either the patient one is woken, or the hurried one's wait returns 0.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c;
static int token, waiting, took_patient, took_hurried;
static bool closing;
static pthread_barrier_t round_start, round_end;
enum { ROUNDS = 1500 };

static void *patient(void *data)
{
    (void)data;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_start);
        OK(pthread_mutex_lock(&m));
        waiting++;
        while (!token && !closing)
            OK(pthread_cond_wait(&c, &m));
        if (token) {
            token--;
            took_patient++;
        }
        OK(pthread_mutex_unlock(&m));
        pthread_barrier_wait(&round_end);
    }
    return NULL;
}

static void *hurried(void *data)
{
    (void)data;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_start);
        OK(pthread_mutex_lock(&m));
        waiting++;
        struct timespec soon = in_ms(CLOCK_MONOTONIC, 0);
        soon.tv_nsec += 20000 + i % 40 * 2000;
        if (soon.tv_nsec >= 1000000000) {
            soon.tv_nsec -= 1000000000;
            soon.tv_sec++;
        }
        int code = 0;
        if (!token)
            code = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &soon);
        CHECK(code == 0 || code == ETIMEDOUT);
        /* Woken, not timed out: the signal is ours, to use or to pass on. */
        if (code == 0) {
            if (token) {
                token--;
                took_hurried++;
            } else {
                OK(pthread_cond_signal(&c));
            }
        }
        OK(pthread_mutex_unlock(&m));
        pthread_barrier_wait(&round_end);
    }
    return NULL;
}

int main(void)
{
    OK(pthread_cond_init(&c, NULL));
    OK(pthread_barrier_init(&round_start, NULL, 3));
    OK(pthread_barrier_init(&round_end, NULL, 3));
    pthread_t one = start(patient, NULL), two = start(hurried, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        waiting = 0;
        OK(pthread_mutex_unlock(&m));
        pthread_barrier_wait(&round_start);
        for (bool both = false; !both;) {
            OK(pthread_mutex_lock(&m));
            both = waiting == 2;
            if (both)
                token = 1;
            OK(pthread_mutex_unlock(&m));
        }
        for (volatile int j = 0; j < i % 50 * 400; j++)
            ;
        OK(pthread_cond_signal(&c));
        /* One of them takes it, without another signal. */
        bool taken = false;
        for (int turn = 0; turn < 200000 && !taken; turn++) {
            OK(pthread_mutex_lock(&m));
            taken = token == 0;
            OK(pthread_mutex_unlock(&m));
            if (!taken)
                usleep(turn > 100 ? 100 : 0);
        }
        CHECK(taken);
        if (!taken)
            return finish();
        OK(pthread_mutex_lock(&m));
        closing = true;
        OK(pthread_cond_broadcast(&c));
        OK(pthread_mutex_unlock(&m));
        pthread_barrier_wait(&round_end);
        closing = false;
    }
    join(one);
    join(two);
    CHECK(took_patient + took_hurried == ROUNDS);
    printf("%d tokens taken\n", took_patient + took_hurried);
    OK(pthread_cond_destroy(&c));
    return finish();
}
