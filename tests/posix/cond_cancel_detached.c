// Detached threads are cancelled out of pthread_cond_wait, and out of one of glibc's own sleeps. When glibc's
// pthread_cancel returns, the threads and their stacks are gone: nobody may look at them any more.
// library: lib_cancel
// limit: 60
#include "check.h"

enum { ROUNDS = 20 };

extern atomic_int cancelled_tid;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int cleaned;

static void clean(void *data)
{
    (void)data;
    cleaned++;
    OK(pthread_mutex_unlock(&m));
}

static void *waits(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(clean, NULL);
    cancelled_tid = (int)syscall(SYS_gettid);
    for (;;)
        OK(pthread_cond_wait(&c, &m));
    pthread_cleanup_pop(0);
    return NULL;
}

static void *sleeps(void *data)
{
    (void)data;
    cancelled_tid = (int)syscall(SYS_gettid);
    for (;;)
        pause();
    return NULL;
}

static pthread_t detached(void *(*body)(void *))
{
    pthread_attr_t attr;
    pthread_t thread;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 48 << 20));
    OK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
    OK(pthread_create(&thread, &attr, body, NULL));
    OK(pthread_attr_destroy(&attr));
    return thread;
}

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        cancelled_tid = 0;
        pthread_t thread = detached(round % 2 ? waits : sleeps);
        UNTIL(cancelled_tid && is_asleep(cancelled_tid));
        OK(pthread_cancel(thread));
    }
    CHECK(cleaned == ROUNDS / 2);
    EXPECT(pthread_cond_destroy(&c), 0);
    EXPECT(pthread_mutex_destroy(&m), 0);
    return finish();
}
