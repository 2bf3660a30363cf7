// A library that is opened by dlmopen.
#include "check.h"

static pthread_t thread;
static void (*callback)(void);

static void *run(void *data)
{
    callback();
    return data;
}

int namespace_begin(void (*with)(void));
int namespace_begin(void (*with)(void))
{
    callback = with;
    return pthread_create(&thread, NULL, run, NULL);
}

int namespace_end(void);
int namespace_end(void) { return pthread_join(thread, NULL); }

void namespace_count(pthread_mutex_t *mutex, long *counter, int rounds);
void namespace_count(pthread_mutex_t *mutex, long *counter, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        OK(pthread_mutex_lock(mutex));
        ++*counter;
        // Long enough for the others to fall asleep, so that this copy's unlock wakes them.
        if (i % 100 == 0)
            sleep_ms(1);
        OK(pthread_mutex_unlock(mutex));
    }
}
