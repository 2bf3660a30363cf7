// Calls that end by an exception, by longjmp or by cancellation leave no epoch behind: what comes after them is
// counted, they are not. Virtual functions are called by tables, which the dynamic linker fills too.
// library: lib_throws
// epoch: _ZN5Store3getEl 1000
// epoch: _Z7throwerl 501
// epoch: _Z4deepl 0
// epoch: _Z7throughPFllEl 1
// epoch: jumper 0
// epoch: sleeper 0
#include "throws.h"
#include <cstdio>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

static int cleaned;

struct Cleaner {
    ~Cleaner() { cleaned++; }
};

static void *cancelled(void *started)
{
    Cleaner cleaner;
    *static_cast<volatile bool *>(started) = true;
    sleeper();
    return nullptr;
}

// Deeper and deeper. An epoch that outlived its exception would stay: the deeper ones could be inside of it; and
// after 64 of them the library complains.
static int nest(int level);
static int (*volatile deeper)(int) = nest; // else it becomes a loop

static int nest(int level)
{
    int caught = 0;
    try {
        thrower(1);
    } catch (const std::runtime_error &) {
        caught++;
    }
    return level == 0 ? caught : caught + deeper(level - 1);
}

int main()
{
    printf("%d\n", nest(199));
    Store *store = open_store();
    long sum = 0, caught = 0;
    for (long i = 0; i < 1000; i++) {
        sum += store->get(i);
        try {
            thrower(i);
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    printf("%ld %ld\n", sum, caught);
    try {
        deep(50);
    } catch (const std::runtime_error &error) {
        printf("%s\n", error.what());
    }
    printf("%ld\n", through(thrower, 2));
    try {
        through(thrower, 3);
    } catch (const std::runtime_error &error) {
        printf("%s\n", error.what());
    }
    jmp_buf back;
    volatile int jumps = 0;
    if (setjmp(back) < 2 && jumps < 300) {
        jumps = jumps + 1;
        jumper(&back, jumps % 7);
    }
    printf("%d jumps\n", jumps);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        volatile bool started = false;
        void *result = nullptr;
        pthread_create(&thread, nullptr, cancelled, const_cast<bool *>(&started));
        while (!started || usleep(500))
            ;
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            puts("not cancelled");
    }
    printf("%d cleaned\n", cleaned);
    delete store;
}
