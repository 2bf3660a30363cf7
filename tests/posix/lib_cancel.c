// Loaded behind our library: a pthread_cancel that calls glibc's, and returns once the thread and its stack are gone.
#include "check.h"

atomic_int cancelled_tid;

static void *nothing(void *data)
{
    return data;
}

/* glibc caches the stacks of ended threads; a stack too large for that cache makes it unmap others. */
static void displace_stacks(void)
{
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 48 << 20));
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        OK(pthread_create(&thread, &attr, nothing, NULL));
        OK(pthread_join(thread, NULL));
    }
    OK(pthread_attr_destroy(&attr));
}

int pthread_cancel(pthread_t thread)
{
    int (*glibcs)(pthread_t) = (int (*)(pthread_t))dlsym(RTLD_NEXT, "pthread_cancel");
    int code = glibcs(thread);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", cancelled_tid);
    UNTIL(access(path, F_OK) != 0);
    displace_stacks();
    return code;
}
