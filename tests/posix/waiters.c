// Very many threads wait for one mutex: more than any count of waiters has room for. Each waits its turn asleep: hardly any is woken, or
// loses its CPU, in vain.
// limit: 90
#include "check.h"
#include <sys/resource.h>

enum { MOST = 1100, ROUNDS = 5 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long counter, switches;
static int threads;
static _Atomic int arrived, done, is_over;

static void futex(int operation, int value)
{
    syscall(SYS_futex, &is_over, operation, value, NULL, NULL, 0);
}

static long switches_so_far(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_nvcsw;
}

static void *rounds(void *data)
{
    (void)data;
    arrived++;
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
    /* They end together, after the count: an end costs switches, too. */
    if (++done == threads) {
        switches += switches_so_far();
        is_over = 1;
        futex(1 /* wake */, INT32_MAX);
    }
    while (!is_over)
        futex(0 /* wait */, 0);
    return NULL;
}

static void run(int count)
{
    static pthread_t all[MOST];
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstacksize(&attr, 64 * 1024));
    threads = count;
    counter = arrived = done = is_over = 0;
    OK(pthread_mutex_lock(&m));
    for (int i = 0; i < count; i++)
        OK(pthread_create(&all[i], &attr, rounds, NULL));
    UNTIL(arrived == count);
    sleep_ms(200);
    switches = -switches_so_far();
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < count; i++)
        join(all[i]);
    OK(pthread_attr_destroy(&attr));
    CHECK(counter == count * ROUNDS);
    /* One for each thread, in the end, and some for its turns. (It was 300 for each turn.) */
    CHECK(switches < 20 * counter);
    printf("%d threads, %ld turns\n", count, counter);
}

int main(void)
{
    int counts[] = {2, 495, 511, 512, 513, 600, MOST};
    for (int i = 0; i < 7; i++)
        run(counts[i]);
    return finish();
}
