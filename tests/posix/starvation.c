// Nobody starves: a thread on a little core gets a mutex that a big core never leaves alone. (The harness calls CPU 0 big.)
// The lock's window is 100 ms at most; the bound here leaves room for a machine that stalls.
#include "check.h"

enum { TURNS = 10, BOUND_MS = 10000 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool over;
static volatile unsigned work;

// Moves the calling thread to the CPU `wanted`, if there is one.
static void run_on(int wanted)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(wanted, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *never_leaves_it(void *data)
{
    (void)data;
    run_on(0);
    while (!atomic_load(&over)) {
        OK(pthread_mutex_lock(&m));
        for (unsigned i = 0; i < 2000; i++)
            work = work * 5 + i;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
    pthread_t other;
    OK(pthread_create(&other, NULL, never_leaves_it, NULL));
    run_on(1);
    long longest = 0;
    for (int i = 0; i < TURNS; i++) {
        long asked = now_ms();
        OK(pthread_mutex_lock(&m));
        long waited = now_ms() - asked;
        if (waited > longest)
            longest = waited;
        work++;
        OK(pthread_mutex_unlock(&m));
        usleep(1000);
    }
    CHECK(longest < BOUND_MS);
    atomic_store(&over, true);
    OK(pthread_join(other, NULL));
    printf("%d turns\n", TURNS);
    return finish();
}
