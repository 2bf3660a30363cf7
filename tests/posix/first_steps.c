// A program that steps itself, as a debugger would: the trap flag interrupts it after each instruction of its first wait. Part of that the
// library does on a stack of its own, where it holds other signals back.
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_long steps;
static atomic_int waiter;

#ifdef __x86_64__
static void trap(bool on)
{
    unsigned long flags;
    __asm__ volatile("sub $128, %%rsp\n\tpushfq\n\tpop %0\n\tadd $128, %%rsp" : "=r"(flags)::"memory");
    flags = on ? flags | 0x100 : flags & ~0x100UL;
    __asm__ volatile("sub $128, %%rsp\n\tpush %0\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::"r"(flags) : "memory", "cc");
}
#else
static void trap(bool on)
{
    steps += on;
}
#endif

static void on_trap(int signal)
{
    (void)signal;
    steps++;
}

static void *waits(void *data)
{
    waiter = (int)syscall(SYS_gettid);
    trap(true);
    int error = pthread_mutex_lock(&mutex);
    trap(false);
    OK(error);
    OK(pthread_mutex_unlock(&mutex));
    return data;
}

int main(void)
{
    signal(SIGTRAP, on_trap);
    OK(pthread_mutex_lock(&mutex));
    pthread_t thread = start(waits, NULL);
    UNTIL(waiter && is_asleep(waiter));
    OK(pthread_mutex_unlock(&mutex));
    join(thread);
    CHECK(steps > 0);
    return finish();
}
