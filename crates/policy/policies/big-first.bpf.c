/*
 * big-first: threads on faster cores go first, but nobody waits much longer than 2 ms.
 *
 * SHFL-PB and LibASL reorder for the same reason: a short section on a big core delays everybody less than the same section on a little
 * one. Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022. Here a time bounds the wait, instead of a proportion.
 *
 * Bound: a waiter that has waited for `most_ns`, or has been passed `most_passed` times, is passed by nobody. It still waits for those
 * ahead of it. The lock's own `bypass` holds too.
 * Tune: most_ns, ns; most_passed.
 */
#include "lockwright_policy.h"

const volatile __u64 most_ns = 2000000;
const volatile __u32 most_passed = 500;

LW_HOOK(cmp_node)
{
    /* Waiters of one class stay in the order of their arrival, so the next in line has waited longest. */
    if (ctx->round == 0)
        return ctx->curr.core_class == 0 || ctx->curr.wait_ns >= most_ns || ctx->curr.passed >= most_passed ? LW_NEXT : LW_NO;
    if (ctx->curr.core_class == 0)
        return LW_NEXT;
    return ctx->curr.core_class < ctx->best.core_class ? LW_BETTER : LW_NO;
}
