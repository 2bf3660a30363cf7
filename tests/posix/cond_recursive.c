// A condition variable with mutexes of every private kind; the depth of a recursive one survives the wait.
#include "check.h"

static pthread_mutex_t m;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int turn;

static void *other(void *data)
{
    (void)data;
    for (int i = 0; i < 1000; i++) {
        OK(pthread_mutex_lock(&m));
        while (turn != 1)
            OK(pthread_cond_wait(&c, &m));
        turn = 0;
        OK(pthread_cond_broadcast(&c));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(void)
{
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int k = 0; k < 4; k++) {
        init_kind(&m, kinds[k]);
        turn = 0;
        pthread_t thread = start(other, NULL);
        for (int i = 0; i < 1000; i++) {
            OK(pthread_mutex_lock(&m));
            turn = 1;
            OK(pthread_cond_signal(&c));
            while (turn != 0)
                OK(pthread_cond_wait(&c, &m));
            OK(pthread_mutex_unlock(&m));
        }
        join(thread);
        if (kinds[k] == PTHREAD_MUTEX_RECURSIVE) {
            struct timespec soon = in_ms(CLOCK_REALTIME, 20);
            OK(pthread_mutex_lock(&m));
            EXPECT(pthread_cond_timedwait(&c, &m, &soon), ETIMEDOUT);
            EXPECT(pthread_mutex_lock(&m), 0);
            EXPECT(pthread_mutex_unlock(&m), 0);
            EXPECT(elsewhere(try_it, &m), EBUSY);
            EXPECT(pthread_mutex_unlock(&m), 0);
            EXPECT(pthread_mutex_unlock(&m), EPERM);
        }
        EXPECT(elsewhere(try_it, &m), 0);
        EXPECT(pthread_mutex_destroy(&m), 0);
    }
    EXPECT(pthread_cond_destroy(&c), 0);
    return finish();
}
