/* Shared by the programs whose threads leave a wait other than by returning from it. */
#pragma once
#include "check.h"
#include <setjmp.h>

/* How a thread leaves. */
enum way { CANCELLED, EXITS, JUMPS, WAYS };
static const char *const way_names[] = {"async cancel", "pthread_exit", "siglongjmp"};

struct leaver {
    pthread_t thread;
    enum way way;
    atomic_int tid;
    sigjmp_buf back;
};
static _Thread_local struct leaver *me;

static void on_signal(int signal)
{
    (void)signal;
    if (me->way == JUMPS)
        siglongjmp(me->back, 1);
    pthread_exit(PTHREAD_CANCELED);
}

/* Tells a thread to leave. */
static inline void tell(struct leaver *leaver)
{
    if (leaver->way == CANCELLED)
        OK(pthread_cancel(leaver->thread));
    else
        OK(pthread_kill(leaver->thread, SIGUSR1));
}

/* The leaver's first lines: waits by `call` until it is told to leave. */
#define WAIT_UNTIL_TOLD(leaver, call)                                    \
    do {                                                                 \
        int old_;                                                        \
        me = (leaver);                                                   \
        if (sigsetjmp(me->back, 1) == 0) {                               \
            OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old_)); \
            me->tid = (int)syscall(SYS_gettid);                          \
            call;                                                        \
            CHECK(!"told to leave");                                     \
        }                                                                \
    } while (0)

/* A hang must end as a failure, and soon. */
static inline void prepare(void)
{
    alarm(40);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
}

/* Waits until the thread sleeps. */
static inline void until_asleep(struct leaver *leaver)
{
    UNTIL(leaver->tid);
    UNTIL(is_asleep(leaver->tid));
}
