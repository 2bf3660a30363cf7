/*
 * numa: waiters of the next holder's NUMA node go first, so the lock and its data stay there for a while.
 *
 * S. Kashyap, I. Calciu, X. Cheng, C. Min, T. Kim, Scalable and Practical Locking with Shuffling (ShflLock), SOSP 2019. SynCord ships
 * the same policy as `numa-grouping`.
 *
 * Bound: once `most_passed` waiters have gone past the next in line, it is next. The lock's own `bypass` holds too.
 * Tune: most_passed (ShflLock's is 1024).
 */
#include "lockwright_policy.h"

const volatile __u32 most_passed = 500;

LW_HOOK(skip_shuffle)
{
    return ctx->batch >= most_passed;
}

LW_HOOK(cmp_node)
{
    return ctx->curr.numa == ctx->own.numa ? LW_NEXT : LW_NO;
}
