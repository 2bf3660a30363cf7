// A real-time thread comes last, and gets the mutex first: the kernel wakes those that sleep for it by priority, and locks that
// don't promise another order leave that to the kernel.
#include "check.h"
#include <semaphore.h>

enum { OTHERS = 6, ROUNDS = 200, ENOUGH = 180 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begins, ends;
static sem_t may_come;
static atomic_int ids[OTHERS + 1];
static int served, first;

static void visit(int who)
{
    OK(pthread_mutex_lock(&m));
    if (served++ == 0)
        first = who;
    OK(pthread_mutex_unlock(&m));
}

static void *other(void *data)
{
    int who = (int)(intptr_t)data;
    ids[who] = (int)syscall(SYS_gettid);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&begins);
        visit(who);
        pthread_barrier_wait(&ends);
    }
    return NULL;
}

static void *urgent(void *data)
{
    /* It has waited before it becomes urgent, which is noticed within 17 ms. */
    visit(OTHERS);
    struct sched_param how = {.sched_priority = 10};
    *(bool *)data = pthread_setschedparam(pthread_self(), SCHED_FIFO, &how) == 0;
    sleep_ms(30);
    ids[OTHERS] = (int)syscall(SYS_gettid);
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&may_come);
        visit(OTHERS);
        pthread_barrier_wait(&ends);
    }
    return NULL;
}

static bool are_asleep(int from, int to)
{
    for (int look = 0; look < 2; look++)
        for (int who = from; who < to; who++)
            if (!is_asleep(ids[who]))
                return false;
    return true;
}

int main(void)
{
    const char *lock = getenv("LOCKWRIGHT_LOCK");
    bool by_priority = !lock || !*lock || !strncmp(lock, "auto", 4) || !strncmp(lock, "barging", 7) ||
                       !strncmp(lock, "slo", 3) || !strncmp(lock, "glibc", 5);
    bool is_permitted = false; /* if not, the order is not checked */
    pthread_t threads[OTHERS + 1];
    pthread_barrier_init(&begins, NULL, OTHERS + 1);
    pthread_barrier_init(&ends, NULL, OTHERS + 2);
    sem_init(&may_come, 0, 0);
    OK(pthread_mutex_lock(&m));
    threads[OTHERS] = start(urgent, &is_permitted);
    sleep_ms(1);
    OK(pthread_mutex_unlock(&m));
    for (intptr_t i = 0; i < OTHERS; i++)
        threads[i] = start(other, (void *)i);
    UNTIL(ids[OTHERS] != 0);
    int before_all = 0;
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        served = 0;
        pthread_barrier_wait(&begins);
        UNTIL(are_asleep(0, OTHERS));
        sem_post(&may_come);
        UNTIL(are_asleep(0, OTHERS + 1));
        OK(pthread_mutex_unlock(&m));
        pthread_barrier_wait(&ends);
        before_all += first == OTHERS;
    }
    for (int i = 0; i <= OTHERS; i++)
        join(threads[i]);
    /* One that dozes may just have been awake. */
    if (is_permitted && by_priority && before_all < ENOUGH)
        printf("FAILED: it was the first in %d of %d rounds\n", before_all, ROUNDS), failures++;
    return finish();
}
