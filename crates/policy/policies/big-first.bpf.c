/*
 * big-first: threads on faster cores go first, but nobody waits much longer than 2 ms.
 *
 * LibASL reorders for the same reason: a section on a little core takes longer, and delays everybody who waits. Nian Liu et al.,
 * Asymmetry-aware Scalable Locking, PPoPP 2022. Here a fixed time bounds the wait, instead of an SLO.
 *
 * Bound: a thread on a slower core stands by for half of `most_ns`, and takes the lock if it finds it free. Then it is in line, and
 * once it has waited there for as long, or has been passed `most_passed` times, nobody passes it. It still waits for those ahead of it.
 * Tune: most_ns, ns; most_passed: the lock's own `bypass` holds too.
 */
#include "lockwright_policy.h"

const volatile __u64 most_ns = 2000000;
const volatile __u32 most_passed = 500;

LW_HOOK(lock_contended)
{
    __u64 ns = most_ns / 2;

    if (ctx->own.core_class == 0)
        return 0;
    return ns < LW_LONGEST_NS ? ns : LW_LONGEST_NS;
}

LW_HOOK(cmp_node)
{
    /* Waiters of one class stay in the order of their arrival, so the next in line has waited longest. */
    if (ctx->round == 0)
        return ctx->curr.core_class == 0 || ctx->curr.wait_ns >= most_ns / 2 || ctx->curr.passed >= most_passed ? LW_NEXT : LW_NO;
    if (ctx->curr.core_class == 0)
        return LW_GROUP;
    return ctx->curr.core_class < ctx->best.core_class ? LW_BETTER : LW_NO;
}
