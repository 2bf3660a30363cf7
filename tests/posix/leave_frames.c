// Threads are cancelled while they wait for a mutex: what the frames of their callers have to clean up is cleaned up, by the unwinder.
// flag: -fexceptions
// whole: yes
// whole says: has left a textbook lock's queue
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* To the compiler, a call that may unwind. */
static int (*volatile lock)(pthread_mutex_t *) = pthread_mutex_lock;
static atomic_int about_to, by_frame, by_handler;

static void leaves(int *frame)
{
    (void)frame;
    by_frame++;
}

static void handles(void *data)
{
    (void)data;
    by_handler++;
}

static void *waits(void *data)
{
    int frame __attribute__((cleanup(leaves))) = 0, old;
    pthread_cleanup_push(handles, NULL);
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    about_to = (int)syscall(SYS_gettid);
    lock(&mutex);
    pthread_cleanup_pop(0);
    return data;
}

/* A thread that is cancelled before it waits need not clean up (compilers expect that of calls alone): such rounds don't count. */
enum { ROUNDS = 20, MOST = 10 * ROUNDS };

int main(void)
{
    for (int i = 0; i < MOST && (by_frame < ROUNDS || by_handler < ROUNDS); i++) {
        OK(pthread_mutex_lock(&mutex));
        about_to = 0;
        pthread_t thread = start(waits, NULL);
        UNTIL(about_to != 0);
        sleep_ms(20); // by then it waits, in nearly every round
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED);
        OK(pthread_mutex_unlock(&mutex));
    }
    CHECK(by_frame >= ROUNDS && by_handler >= ROUNDS);
    return finish();
}
