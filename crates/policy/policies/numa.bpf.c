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

/* Which nodes have waited; the machine may have more than 32. */
static __u32 nodes;

LW_HOOK(cmp_node)
{
    __u32 is_here = ctx->curr.numa == ctx->own.numa, bit = 1U << (ctx->curr.numa & 31);

    if (!(nodes & bit))
        nodes |= bit;
    if (nodes == bit)
        return LW_NO; /* All are on one node, so the lock may rest from choices. */

    if (ctx->round == 0)
        return is_here || ctx->batch >= most_passed ? LW_NEXT : LW_NO;
    return is_here ? LW_GROUP : LW_NO;
}
