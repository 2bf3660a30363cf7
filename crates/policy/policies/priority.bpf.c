/*
 * priority: the waiter with the largest tag goes first; of equal tags, the one with the highest priority.
 *
 * SynCord's and C3's case of priority boosting: S. Park et al., Application-Informed Kernel Synchronization Primitives, OSDI 2022.
 * `lockwright policy tag TID 5 --pid PID` gives a thread the tag; nice values and real-time priorities need no tag.
 *
 * Bound: a waiter that has been passed `most_passed` times is next. The lock's own `bypass` holds too.
 * Tune: most_passed.
 */
#include "lockwright_policy.h"

const volatile __u32 most_passed = 100;

LW_HOOK(cmp_node)
{
    if (ctx->round == 0 && ctx->curr.passed >= most_passed)
        return LW_NEXT;
    if (ctx->curr.tag != ctx->best.tag)
        return ctx->curr.tag > ctx->best.tag ? LW_BETTER : LW_NO;
    return ctx->curr.prio > ctx->best.prio ? LW_BETTER : LW_NO;
}
