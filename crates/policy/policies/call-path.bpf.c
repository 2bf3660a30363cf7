/*
 * call-path: threads that are inside an epoch go first, the tightest SLO before the others.
 *
 * C3's priority boosting by call path: S. Park et al., Contextual Concurrency Control, HotOS 2021, section 3.1. An epoch marks the path:
 * `lockwright run --epoch 'get=leveldb_get:50us'` makes one of each call of a function, in a program that stays as it is.
 *
 * Bound: a waiter that has been passed `most_passed` times is next. The lock's own `bypass` holds too.
 * Tune: most_passed.
 */
#include "lockwright_policy.h"

const volatile __u32 most_passed = 100;

/* Outside epochs, and in an epoch without an SLO: later than any SLO. */
#define NO_SLO (1ULL << 62)

static __always_inline __u64 rank(const struct lw_node *node)
{
    if (!(node->flags & LW_IN_EPOCH))
        return NO_SLO + 1;
    return node->slo_ns ? node->slo_ns : NO_SLO;
}

LW_HOOK(cmp_node)
{
    if (ctx->round == 0 && ctx->curr.passed >= most_passed)
        return LW_NEXT;
    return rank(&ctx->curr) < rank(&ctx->best) ? LW_BETTER : LW_NO;
}
