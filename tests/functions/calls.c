// Arguments and results of every kind arrive as they were, whichever way the call goes; each call is an epoch.
// library: lib_calls
// epoch: plain 40007
// epoch: many 1
// epoch: sum 1
// epoch: extended 2
// epoch: two_extended 1
// epoch: in_memory 1
// epoch: mixed 1
// epoch: doubles 1
// epoch: longs 1
// epoch: recursive 30
// epoch: error_kept 2
// epoch: wider 3
#include "../posix/check.h"
#include "calls.h"
#include <ucontext.h>

static ucontext_t outside, inside;
static long from_coroutine;

/* Close to the end of its stack, behind which nothing can be read. */
static void coroutine(void) { from_coroutine = plain(1) + plain(2); }

static void run_coroutine(void)
{
    long page = sysconf(_SC_PAGESIZE), size = 16 * page;
    char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + size, page, PROT_NONE) == 0);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = memory;
    inside.uc_stack.ss_size = size;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
    CHECK(from_coroutine == 5);
}

static void *thread(void *data)
{
    long bad = 0;
    for (long i = 0; i < 10000; i++)
        bad += plain(i) != i + 1;
    CHECK(bad == 0);
    return data;
}

__attribute__((target("avx"))) static void run_wide(void)
{
    for (int i = 0; i < 3; i++) {
        wide x = {1, 2, 3, 4}, y = wider(x);
        /* A thread's first call may set up memory by functions that clear the upper halves. */
        if (i > 0)
            CHECK(y[0] == 2 && y[1] == 4 && y[2] == 6 && y[3] == 8);
    }
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        CHECK(plain(i) == i + 1);
    long (*volatile pointer)(long) = plain;
    CHECK(pointer(41) == 42);
    struct large large;
    for (int i = 0; i < 20; i++)
        large.of[i] = i;
    struct big big = {1, 2, 3, 4, 5};
    printf("%f\n", many(1, 2.5, 3, 4.5f, 5, 6.5, 7, 8, 9, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5, 16, big, 17.25L,
                        large));
    printf("%f\n", sum(10, 1L, 2.0, 3L, 4.0, 5L, 6.0, 7L, 8.0, 9L, 10.0));
    printf("%Lf\n", extended(2) + extended(3));
    _Complex long double two = two_extended(4);
    printf("%Lf %Lf\n", __real__ two, __imag__ two);
    big = in_memory(7);
    printf("%ld %ld %ld %ld %ld\n", big.a, big.b, big.c, big.d, big.e);
    struct mixed both = mixed(5);
    printf("%ld %f\n", both.a, both.b);
    struct doubles floats = doubles(1.5);
    printf("%f %f\n", floats.a, floats.b);
    struct longs pair = longs(6);
    printf("%ld %ld\n", pair.a, pair.b);
    CHECK(recursive(30) == 30);
    errno = EDOM;
    CHECK(error_kept(ERANGE) == EDOM && errno == ERANGE);
    CHECK(error_kept(0) == ERANGE && errno == 0);
    run_coroutine();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(thread, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    if (__builtin_cpu_supports("avx"))
        run_wide();
    else
        printf("no AVX here\n");
    CHECK(plain(0) == 1);
    return finish();
}
