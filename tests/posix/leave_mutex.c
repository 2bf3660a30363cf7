// Threads are torn out of pthread_mutex_lock and pthread_mutex_timedlock, by asynchronous cancellation, by pthread_exit
// and by siglongjmp in a signal handler, while another thread holds the mutex: for all others it works as before.
// limit: 60
// whole: yes
// whole says: has left a textbook lock's queue
#include "leave.h"

enum { OTHERS = 3, LEAVERS = 3, ROUNDS = 24 };

static pthread_mutex_t mutex;
static bool timed;
static int entered;
static atomic_int started;

static void lock(bool timed)
{
    struct timespec later = in_ms(CLOCK_REALTIME, 60000);
    CHECK((timed ? pthread_mutex_timedlock(&mutex, &later) : pthread_mutex_lock(&mutex)) == 0);
}

static void *leaves(void *data)
{
    WAIT_UNTIL_TOLD(data, lock(timed));
    return PTHREAD_CANCELED;
}

static void *stays(void *data)
{
    started++;
    lock(data != NULL);
    entered++;
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

static void round_of(enum way way, int round)
{
    struct leaver leavers[LEAVERS] = {0};
    pthread_t others[OTHERS];
    entered = started = 0;
    OK(pthread_mutex_lock(&mutex));
    /* The threads that stay queue before, between and behind the leavers. */
    for (int i = 0; i < LEAVERS; i++) {
        leavers[i].way = way;
        bool first = (i + round) % 2;
        if (first) {
            others[i] = start(stays, i == round % 5 ? &others : NULL);
            UNTIL(started == i + 1);
        }
        leavers[i].thread = start(leaves, &leavers[i]);
        UNTIL(leavers[i].tid);
        if (round % 3 == 0)
            until_asleep(&leavers[i]);
        if (!first)
            others[i] = start(stays, NULL);
        UNTIL(started == i + 1);
    }
    if (round % 3 == 1)
        for (int i = 0; i < LEAVERS; i++)
            until_asleep(&leavers[i]);
    for (int i = 0; i < LEAVERS; i++)
        tell(&leavers[round % 2 ? i : LEAVERS - 1 - i]);
    for (int i = 0; i < LEAVERS; i++)
        CHECK(join(leavers[i].thread) == PTHREAD_CANCELED);
    CHECK(entered == 0);
    OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < OTHERS; i++)
        OK(pthread_join(others[i], NULL));
    CHECK(entered == OTHERS);
    CHECK(elsewhere(try_it, &mutex) == 0);
}

static void alone(enum way way)
{
    struct leaver leaver = {.way = way};
    OK(pthread_mutex_lock(&mutex));
    leaver.thread = start(leaves, &leaver);
    until_asleep(&leaver);
    tell(&leaver);
    CHECK(join(leaver.thread) == PTHREAD_CANCELED);
    OK(pthread_mutex_unlock(&mutex));
    lock(false);
    OK(pthread_mutex_unlock(&mutex));
    CHECK(elsewhere(try_it, &mutex) == 0);
}

int main(int count, char **arguments)
{
    prepare();
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (enum way way = 0; way < WAYS; way++) {
        if (count > 1 && strcmp(arguments[1], way_names[way]) != 0)
            continue;
        for (int kind = 0; kind < 4; kind++) {
            for (int i = 0; i < 2; i++) {
                timed = i;
                init_kind(&mutex, kinds[kind]);
                alone(way);
                EXPECT(pthread_mutex_destroy(&mutex), 0);
            }
        }
        timed = false;
        init_kind(&mutex, PTHREAD_MUTEX_NORMAL);
        for (int round = 0; round < ROUNDS; round++) {
            timed = round % 8 == 7;
            round_of(way, round);
        }
        EXPECT(pthread_mutex_destroy(&mutex), 0);
        printf("%s: done\n", way_names[way]);
        fflush(stdout);
    }
    return finish();
}
