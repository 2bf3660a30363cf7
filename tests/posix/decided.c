// A mutex gets its lock, by a rule of its own, when it is first contended; meanwhile its holder unlocks it. Whatever the
// holder takes the mutex for at that moment, the new arrival gets its wake-up. Each round has a fresh mutex.
// limit: 120
#include "check.h"

enum { ROUNDS = 6000 };

static pthread_mutex_t locks[ROUNDS];
static atomic_int held, done;
extern const char __executable_start;

// Yields after a while: on a single CPU, the other thread has to run too.
static void wait_for(atomic_int *turn, int round)
{
    for (int looks = 0; atomic_load(turn) != round; looks++)
        if (looks > 1000)
            sched_yield();
}

static void *arrive(void *data)
{
    (void)data;
    for (int i = 1; i < ROUNDS; i++) {
        wait_for(&held, i);
        OK(pthread_mutex_lock(&locks[i]));
        OK(pthread_mutex_unlock(&locks[i]));
        atomic_store(&done, i);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("LOCKWRIGHT_RULES") && getenv("LOCKWRIGHT_LOCK")) {
        // The default lock queues nobody; the rule's lock sleeps at once.
        char rule[128];
        long from = (char *)locks - &__executable_start;
        snprintf(rule, sizeof rule, "mutex:%s+0x%lx-0x%lx=fifo:spin=0", program_invocation_short_name, from,
                 from + (long)sizeof locks);
        setenv("LOCKWRIGHT_RULES", rule, 1);
        setenv("LOCKWRIGHT_LOCK", "glibc", 1);
        execv("/proc/self/exe", argv);
        return 2;
    }
    pthread_t other;
    OK(pthread_create(&other, NULL, arrive, NULL));
    volatile unsigned work = 0;
    for (int i = 1; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&locks[i]));
        atomic_store(&held, i);
        for (int k = 0; k < i % 997; k++)
            work++;
        OK(pthread_mutex_unlock(&locks[i]));
        wait_for(&done, i);
    }
    OK(pthread_join(other, NULL));
    printf("%d mutexes\n", ROUNDS - 1);
    return finish();
}
