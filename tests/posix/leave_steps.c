// A thread is torn out of pthread_mutex_lock and pthread_mutex_timedlock by siglongjmp at one of its instructions, then at another one,
// and so on: the trap flag interrupts it after each. For all other threads the mutex works as before.
// limit: 120
#define _GNU_SOURCE 1
#include "check.h"
#include <setjmp.h>
#include <ucontext.h>

/* In each setting so many instructions are tried, and as many of the last ones, most of which come after the thread has the mutex.
 * (With arguments: all, from the first one on, in steps of the second.) */
enum { TRIES = 8, LAST = 240 };

/* Instructions at which a thread has the mutex, and its owner field doesn't say so: then the mutex is lost. glibc's own functions have
 * eleven, and more if they are timed. */
enum { UNKNOWN = 12, UNKNOWN_TO_GLIBC = 60 };

enum { MOST = 4, MUTEXES = 8192 };

static pthread_mutex_t mutexes[MUTEXES], *mutex = mutexes;
static sigjmp_buf back;
static long at, step;
static bool timed, traced;
static atomic_int go, give, is_over, is_torn, tid, entered, sleepers[MOST];

#ifdef __x86_64__
static void trap(bool on)
{
    unsigned long flags;
    __asm__ volatile("sub $128, %%rsp\n\tpushfq\n\tpop %0\n\tadd $128, %%rsp" : "=r"(flags)::"memory");
    flags = on ? flags | 0x100 : flags & ~0x100UL;
    __asm__ volatile("sub $128, %%rsp\n\tpush %0\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::"r"(flags) : "memory", "cc");
}
#else
static void trap(bool on) { (void)on; }
#endif

static void on_trap(int signal)
{
    (void)signal;
    if (++step == at) {
        is_torn = 1;
        siglongjmp(back, 1);
    }
}

/* Waits as often as it is told, and unlocks if it was torn after it had the mutex. */
static void *stepped(void *data)
{
    (void)data;
    tid = (int)syscall(SYS_gettid);
    for (;;) {
        while (!go) {
            if (give) {
                OK(pthread_mutex_unlock(mutex));
                give = 0;
            }
            sched_yield();
        }
        go = 0;
        struct timespec later = in_ms(CLOCK_REALTIME, 600000);
        if (sigsetjmp(back, 1) == 0) {
            trap(traced);
            if (timed)
                pthread_mutex_timedlock(mutex, &later);
            else
                pthread_mutex_lock(mutex);
            trap(false);
            pthread_mutex_unlock(mutex);
        }
        is_over = 1;
    }
    return NULL;
}

static void *other(void *data)
{
    *(atomic_int *)data = (int)syscall(SYS_gettid);
    OK(pthread_mutex_lock(mutex));
    entered++;
    OK(pthread_mutex_unlock(mutex));
    return NULL;
}

/* Are all others through? No, if they have slept for as long as nobody sleeps who is to have the mutex. */
static bool all_enter(int others)
{
    for (int asleep = 0; entered < others; sched_yield()) {
        bool all = true;
        for (int i = 0; i < others; i++)
            all = all && sleepers[i] && is_asleep(sleepers[i]);
        asleep = all ? asleep + 1 : 0;
        if (asleep > 100)
            return false;
        if (all)
            sleep_ms(1);
    }
    return try_it(mutex) == 0;
}

static int lost;

/* One wait, torn at an instruction, behind and before others. False: it had fewer instructions. */
static bool torn_at(long instruction, int before, int behind)
{
    pthread_t others[MOST];
    int count = 0;
    mutex++;
    CHECK(mutex < mutexes + MUTEXES);
    at = instruction;
    step = is_over = is_torn = entered = 0;
    memset(sleepers, 0, sizeof sleepers);
    OK(pthread_mutex_lock(mutex));
    for (; count < before; count++) {
        others[count] = start(other, &sleepers[count]);
        UNTIL(sleepers[count] && is_asleep(sleepers[count]));
    }
    go = 1;
    while (!is_over && !(go == 0 && is_asleep(tid)))
        sched_yield();
    for (; count < before + behind; count++) {
        others[count] = start(other, &sleepers[count]);
        UNTIL(sleepers[count] && is_asleep(sleepers[count]));
    }
    OK(pthread_mutex_unlock(mutex));
    while (!is_over && !(is_asleep(tid) && mutex->__data.__owner == 0))
        sched_yield();
    UNTIL(is_over);
    bool works = all_enter(count);
    int owner = mutex->__data.__owner;
    if (!works && is_torn && (owner == tid || owner == 1 << 30)) {
        give = 1;
        while (give)
            sched_yield();
        works = all_enter(count);
    }
    if (works) {
        for (int i = 0; i < count; i++)
            OK(pthread_join(others[i], NULL));
    } else {
        lost++;
    }
    return is_torn;
}

/* Tries the instructions from `first` to `end`, in steps. */
static void range(long first, long end, long by, int before, int behind)
{
    int most = (getenv("LD_PRELOAD") ? UNKNOWN : UNKNOWN_TO_GLIBC) / by + 3; // a wait is not always as long
    lost = 0;
    for (long n = first; n < end; n += by)
        torn_at(n, before, behind);
    if (lost > most) {
        printf("FAILED %d before, %d behind%s: lost at %d of %ld instructions from %ld on, in steps of %ld\n", before, behind,
               timed ? ", timed" : "", lost, end - first, first, by);
        failures++;
    }
}

/* Tries some instructions of a wait, behind and before others. */
static void tries(long first, long stride, int before, int behind)
{
    traced = false;
    torn_at(0, before, behind); // the first waits look at the machine
    torn_at(0, before, behind);
    traced = true;
    torn_at(0, before, behind);
    long all = step;
    if (stride) {
        range(first, all + LAST, stride, before, behind);
        return;
    }
    range(1 + time(NULL) % (all / TRIES + 1), all, all / TRIES + 1, before, behind);
    range(all > LAST ? all - LAST : 1, all + LAST / TRIES, LAST / TRIES / 2, before, behind);
}

int main(int count, char **arguments)
{
#ifndef __x86_64__
    return finish();
#endif
    long first = count > 1 ? atol(arguments[1]) : 0, stride = count > 2 ? atol(arguments[2]) : 0;
    CHECK(signal(SIGTRAP, on_trap) != SIG_ERR);
    start(stepped, NULL);
    UNTIL(tid);
    for (int i = 0; i < 2; i++) {
        timed = i;
        tries(first, stride, 0, 0);
        if (!getenv("LD_PRELOAD"))
            continue; // glibc has no line
        tries(first, stride, 1, 1);
        if (!timed)
            tries(first, stride, 2, 1);
    }
    return finish();
}
