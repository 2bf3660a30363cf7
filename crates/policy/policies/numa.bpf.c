/*
 * numa: waiters of the next holder's NUMA node go first, so the lock and its data stay there for a while.
 *
 * S. Kashyap, I. Calciu, X. Cheng, C. Min, T. Kim, Scalable and Practical Locking with Shuffling (ShflLock), SOSP 2019. SynCord ships
 * the same policy as `numa-grouping`.
 *
 * Bound: once `most_passed` waiters have gone past the next in line, it is next. The lock's own `bypass` holds too.
 * Tune: most_passed (ShflLock's is 1024); worth_ns: sections below this are so short that a choice costs more than it gains.
 */
#include "lockwright_policy.h"

const volatile __u32 most_passed = 500;
const volatile __u64 worth_ns = 600;

LW_HOOK(skip_shuffle)
{
    /* One waiter in 32 looks all the same: sections may have become longer. */
    return ctx->avg_cs_ns != 0 && ctx->avg_cs_ns < worth_ns && ctx->now_ns / 64 % 32 != 0;
}

LW_HOOK(cmp_node)
{
    __u32 is_here = ctx->curr.numa == ctx->own.numa;

    if (ctx->round == 0)
        return is_here || ctx->batch >= most_passed ? LW_NEXT : LW_NO;
    return is_here ? LW_NEXT : LW_NO;
}
