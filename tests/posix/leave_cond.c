// Threads are torn out of pthread_cond_wait and pthread_cond_timedwait by pthread_exit and by siglongjmp in a signal
// handler. Their clean-up handlers find the mutex held, no signal for the others is lost, and both objects can be
// destroyed.
// limit: 60
// counted: yes
#include "leave.h"

enum { OTHERS = 4, LEAVERS = 4, ROUNDS = 16 };

static pthread_mutex_t mutex;
static pthread_cond_t cond;
static bool timed;
/* Do they leave from anywhere in the wait, not only from its sleep? glibc's own condvar can't stand that. */
static bool anywhere;
static int tokens, waiting, woken, cleaned, alone_inside;

/* The clean-up handler: it must find the mutex held by its thread. */
static void clean(void *data)
{
    (void)data;
    CHECK(is_owner(&mutex));
    int before = alone_inside++;
    cleaned++;
    sched_yield();
    CHECK(alone_inside == before + 1);
    OK(pthread_mutex_unlock(&mutex));
}

static void wait_once(bool timed)
{
    if (timed) {
        struct timespec later = in_ms(CLOCK_REALTIME, 60000);
        OK(pthread_cond_timedwait(&cond, &mutex, &later));
    } else {
        OK(pthread_cond_wait(&cond, &mutex));
    }
}

static void *leaves(void *data)
{
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(clean, NULL);
    me = data;
    if (sigsetjmp(me->back, 1) == 0) {
        waiting++;
        me->tid = (int)syscall(SYS_gettid);
        for (;;)
            wait_once(timed); /* a spurious wake-up, or one for another thread's token */
    }
    pthread_cleanup_pop(1);
    return PTHREAD_CANCELED;
}

static void *stays(void *data)
{
    OK(pthread_mutex_lock(&mutex));
    waiting++;
    while (!tokens)
        wait_once(data != NULL);
    tokens--;
    woken++;
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* A thread that has counted itself holds the mutex until it waits: if we see the count, they all wait. */
static void until_waiting(int count)
{
    UNTIL(({
        OK(pthread_mutex_lock(&mutex));
        bool all = waiting == count;
        OK(pthread_mutex_unlock(&mutex));
        all;
    }));
}

static void round_of(enum way way, int round)
{
    struct leaver leavers[LEAVERS] = {0};
    pthread_t others[OTHERS];
    tokens = waiting = woken = cleaned = alone_inside = 0;
    timed = round % 4 == 3;
    for (int i = 0; i < LEAVERS; i++) {
        leavers[i].way = way;
        leavers[i].thread = start(leaves, &leavers[i]);
        until_waiting(2 * i + 1);
        others[i] = start(stays, i % 2 ? &others : NULL);
        until_waiting(2 * i + 2);
        if (!anywhere || round % 2)
            until_asleep(&leavers[i]);
    }
    if (round % 3 == 0) {
        /* They leave while we hold the mutex, and have to wait for it. */
        OK(pthread_mutex_lock(&mutex));
        for (int i = 0; i < LEAVERS; i++)
            tell(&leavers[i]);
        if (round % 2)
            sleep_ms(2);
        CHECK(cleaned == 0);
        OK(pthread_mutex_unlock(&mutex));
    } else {
        for (int i = 0; i < LEAVERS; i++)
            tell(&leavers[LEAVERS - 1 - i]);
    }
    for (int i = 0; i < LEAVERS; i++)
        CHECK(join(leavers[i].thread) == PTHREAD_CANCELED);
    CHECK(cleaned == LEAVERS && woken == 0);
    /* One signal for each waiter that is left. */
    for (int i = 0; i < OTHERS; i++) {
        OK(pthread_mutex_lock(&mutex));
        tokens++;
        if (round % 4 < 2)
            OK(pthread_cond_signal(&cond));
        OK(pthread_mutex_unlock(&mutex));
        if (round % 4 >= 2)
            OK(pthread_cond_signal(&cond));
    }
    for (int i = 0; i < OTHERS; i++)
        OK(pthread_join(others[i], NULL));
    CHECK(woken == OTHERS && tokens == 0);
}

int main(int count, char **arguments)
{
    prepare();
    anywhere = dlsym(RTLD_DEFAULT, "lockwright_preloaded");
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK};
    for (enum way way = EXITS; way < WAYS; way++) {
        if (count > 1 && strcmp(arguments[1], way_names[way]) != 0)
            continue;
        for (int kind = 0; kind < 2; kind++) {
            init_kind(&mutex, kinds[kind]);
            OK(pthread_cond_init(&cond, NULL));
            for (int round = 0; round < ROUNDS; round++)
                round_of(way, round);
            EXPECT(pthread_cond_destroy(&cond), 0);
            EXPECT(pthread_mutex_destroy(&mutex), 0);
        }
        printf("%s: done\n", way_names[way]);
        fflush(stdout);
    }
    return finish();
}
