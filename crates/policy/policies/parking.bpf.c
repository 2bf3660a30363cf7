/*
 * parking: how a waiter waits depends on how long it will: awake if shorter than a wake-up, asleep if much longer, and in between asleep
 * but awake again before its turn.
 *
 * C3's parking and wake-up policy: S. Park et al., Contextual Concurrency Control, HotOS 2021, section 3.1. How long a waiter will wait
 * follows from Little's law: the waiters ahead of it, times the mean time between two of them.
 *
 * Bound: the order of the line is untouched.
 * Tune: awake_ns: an expected wait below this is spent awake; long_ns: in one above this, a wake-up at the turn itself doesn't matter.
 */
#include "lockwright_policy.h"

const volatile __u64 awake_ns = 50000;
const volatile __u64 long_ns = 5000000;

struct arrivals {
    __u64 last;    /* when the last waiter arrived */
    __u64 mean_ns; /* the mean time between two */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct arrivals);
    __uint(max_entries, 1024);
} arrivals_at LW_MAP;

LW_HOOK(schedule_waiter)
{
    __u64 lock = ctx->lock_id, gap, most, expected;
    struct arrivals *arrivals = lw_storage(&arrivals_at, &lock);

    if (!arrivals)
        return LW_SPIN;
    gap = ctx->now_ns - arrivals->last;
    arrivals->last = ctx->now_ns;
    /* A time in which nobody asked doesn't count as a whole. */
    most = arrivals->mean_ns * 4 + 10000;
    if (gap > most)
        gap = most;
    arrivals->mean_ns = (arrivals->mean_ns * 7 + gap) / 8;
    expected = arrivals->mean_ns * ctx->nwaiters;
    if (expected < awake_ns)
        return LW_SPIN;
    return expected < long_ns ? LW_WAKE_EARLY : LW_PARK;
}
