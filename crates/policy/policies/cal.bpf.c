/*
 * cal: the waiter that has waited longest in proportion to its own critical section goes next, so that all suffer the same slowdown.
 *
 * CAL: Core-Aware Lock for the big.LITTLE Multicore Architecture, Applied Sciences 14(15), 6449, 2024, section 3:
 * of two waiters, the one with the larger PW = (waited + the other's section) / own section.
 *
 * Bound: the lock's own `bypass`.
 * Tune: classes: how many classes of cores the machine has; worth_ns: sections below this are so short that a choice costs more than it
 * gains; unknown_ns: how long a section counts on the fastest cores until it has been measured.
 */
#include "lockwright_policy.h"

const volatile __u32 classes = 2;
const volatile __u64 worth_ns = 450;
const volatile __u64 unknown_ns = 1000;

/* A longer wait counts as this long, so that the products fit 64 bits. */
#define LONGEST_NS 1000000000ULL

static __always_inline __u64 section(const struct lw_node *node)
{
    __u64 speed = node->speed ? node->speed : 1;

    return node->cs_ns ? node->cs_ns : unknown_ns * 1024 / speed;
}

static __always_inline __u64 waited(const struct lw_node *node)
{
    return node->wait_ns < LONGEST_NS ? node->wait_ns : LONGEST_NS;
}

LW_HOOK(cmp_node)
{
    __u64 mine, best;

    if (ctx->round == 0) {
        __u64 cs = ctx->avg_cs_ns;

        /* One waiter in 32 looks all the same: sections may have become longer. */
        return cs != 0 && cs < worth_ns && ctx->now_ns / 64 % 32 != 0 ? LW_NEXT : LW_NO;
    }
    /* Waiters of one class are served by arrival. */
    if (ctx->curr.core_class == ctx->best.core_class)
        return LW_NO;
    mine = section(&ctx->curr);
    best = section(&ctx->best);
    if ((waited(&ctx->curr) + best) * best <= (waited(&ctx->best) + mine) * mine)
        return LW_NO;
    return classes > 2 ? LW_BETTER : LW_NEXT;
}
