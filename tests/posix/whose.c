// While others sleep behind a holder, __owner names it, however it got the mutex: that is what one looks for in a program
// that hangs. No holder leaves it 0.
#include "check.h"
#include <stdatomic.h>

enum { ROUNDS = 200, OTHERS = 3 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int *owner = &mutex.__data.__owner;
static atomic_bool over;

static void *contends(void *unused)
{
    while (!over) {
        OK(pthread_mutex_lock(&mutex));
        CHECK(*owner != 0);
        OK(pthread_mutex_unlock(&mutex));
    }
    return unused;
}

int main(void)
{
    pthread_t others[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        others[i] = start(contends, NULL);
    int me = (int)syscall(SYS_gettid);
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&mutex));
        // The others come, find the mutex held, and fall asleep.
        while (*owner != me)
            sched_yield();
        OK(pthread_mutex_unlock(&mutex));
    }
    over = true;
    for (int i = 0; i < OTHERS; i++)
        join(others[i]);
    CHECK(mutex.__data.__owner == 0);
    printf("named %d times\n", ROUNDS);
    return finish();
}
