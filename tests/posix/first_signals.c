// Signal handlers that use locks, while the program uses its first ones: what the library makes then, a handler must not wait for.
// POSIX doesn't allow that; glibc's locks do.
#include "check.h"
#include <sys/time.h>

static pthread_mutex_t handlers = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ticks;

static void tick(int signal)
{
    (void)signal;
    if (pthread_mutex_trylock(&handlers) == 0)
        pthread_mutex_unlock(&handlers);
    ticks++;
}

int main(void)
{
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 100 || ticks < 20; i++) {
        pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_unlock(&m));
        OK(pthread_mutex_destroy(&m));
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    return finish();
}
