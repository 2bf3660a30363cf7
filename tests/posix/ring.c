// Threads pass a baton round, with one condvar each, so that every unlock has a signalled waiter to wake. One more thread
// just wants the mutex. It must not wait forever: it gets its turns while the baton goes round. How many rounds that takes
// depends on the machine (if the thread loses its CPU for half a second, 5000 passes go by), so the baton goes round longer
// if need be.
// limit: 120
#include "check.h"

enum { RING = 6, PASSES = 6000, MOST_PASSES = 5 * PASSES, TURNS = 60 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t place[RING];
static int baton, passes, turns;
static atomic_bool over;
static volatile unsigned work;

/* Called by the mutex's holder. */
static bool goes_on(void)
{
    return passes < PASSES || (turns < TURNS && passes < MOST_PASSES);
}

static void *pass_on(void *data)
{
    int me = (int)(intptr_t)data;
    OK(pthread_mutex_lock(&m));
    while (goes_on()) {
        while (baton != me && goes_on())
            OK(pthread_cond_wait(&place[me], &m));
        for (unsigned i = 0; i < 100000; i++)
            work = work * 5 + i;
        passes++;
        baton = (me + 1) % RING;
        OK(pthread_cond_signal(&place[baton]));
    }
    for (int i = 0; i < RING; i++)
        OK(pthread_cond_signal(&place[i]));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *wants_it(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        OK(pthread_mutex_lock(&m));
        turns++;
        OK(pthread_mutex_unlock(&m));
        usleep(100);
    }
    return NULL;
}

int main(void)
{
    pthread_t other, ring[RING];
    for (int i = 0; i < RING; i++)
        OK(pthread_cond_init(&place[i], NULL));
    other = start(wants_it, NULL);
    for (int i = 0; i < RING; i++)
        ring[i] = start(pass_on, (void *)(intptr_t)i);
    for (int i = 0; i < RING; i++)
        join(ring[i]);
    atomic_store(&over, true);
    join(other);
    CHECK(turns >= TURNS);
    if (turns < TURNS)
        printf("%d turns in %d passes\n", turns, passes);
    printf("%d passes, turns in between\n", PASSES);
    return finish();
}
