/*
 * inheritance: a thread that holds other locks goes first, since those who wait for those locks wait for it, too.
 *
 * Lock inheritance: S. Park et al., Contextual Concurrency Control, HotOS 2021, section 3.1.
 *
 * Bound: a waiter that has been passed `most_passed` times is next. The lock's own `bypass` holds too.
 * Tune: most_passed.
 *
 * It counts the locks that run on policies with lock_acquired and lock_release, so it has both: load it for all the locks of a nest.
 */
#include "lockwright_policy.h"

const volatile __u32 most_passed = 100;

LW_HOOK(cmp_node)
{
    if (ctx->round == 0)
        return ctx->curr.held_locks > 0 || ctx->curr.passed >= most_passed ? LW_NEXT : LW_NO;
    return ctx->curr.held_locks > 0 ? LW_NEXT : LW_NO;
}

LW_HOOK(lock_acquired)
{
    return 0;
}

LW_HOOK(lock_release)
{
    return 0;
}
