/*
 * parking: how a waiter waits depends on how long it will: awake if shorter than a wake-up, asleep if much longer, and in between asleep
 * but awake again before its turn.
 *
 * C3's parking and wake-up policy: S. Park et al., Contextual Concurrency Control, HotOS 2021, section 3.1.
 *
 * Bound: the order of the line is untouched.
 * Tune: awake_ns: an expected wait below this is spent awake; long_ns: in one above this, a wake-up at the turn itself doesn't matter.
 */
#include "lockwright_policy.h"

const volatile __u64 awake_ns = 50000;
const volatile __u64 long_ns = 5000000;

LW_HOOK(schedule_waiter)
{
    __u64 expected = ctx->avg_cs_ns * ctx->nwaiters;

    if (expected < awake_ns)
        return LW_SPIN;
    return expected < long_ns ? LW_WAKE_EARLY : LW_PARK;
}
