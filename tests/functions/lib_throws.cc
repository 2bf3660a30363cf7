// Functions that are left in other ways than by returning.
#include "throws.h"
#include <csetjmp>
#include <ctime>
#include <stdexcept>

long Store::get(long key) { return 2 * key; }
Store::~Store() {}
Store *open_store() { return new Store; }

long thrower(long x)
{
    if (x % 2)
        throw std::runtime_error("odd");
    return x;
}

static long (*volatile deeper)(long) = deep;

long deep(long x)
{
    long below = x == 0 ? thrower(1) : deeper(x - 1);
    return below + 1;
}

long through(long (*call)(long), long x) { return call(x) + 1; }

// A word of data, which the dynamic linker fills: the compiler would call itself without a slot.
static void (*volatile again)(jmp_buf *, int) = jumper;

extern "C" void jumper(jmp_buf *back, int level)
{
    if (level == 0)
        longjmp(*back, 1);
    again(back, level - 1);
}

extern "C" void sleeper(void)
{
    for (;;) {
        struct timespec time = {0, 1000000};
        nanosleep(&time, nullptr);
    }
}
