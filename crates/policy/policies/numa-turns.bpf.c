/*
 * numa-turns: NUMA nodes take turns. Threads of the node whose turn it is join the line; the others stand by until their own turn comes,
 * and take the lock if it is free meanwhile. So the lock and its data stay on a node for a slice of time, at no cost to the holder.
 *
 * The idea of cohorts is from D. Dice, V. Marathe, N. Shavit, Lock Cohorting, PPoPP 2012; there a node keeps the lock for a number of
 * hand-overs, by a lock of its own. Here the clock says whose turn it is. Only nodes that have contended lately have turns.
 *
 * Bound: a thread stands by for at most one round, `slice_ns` for each of the nodes, and then waits in the line.
 * Tune: slice_ns. Longer slices move the lock more seldom, and make waits longer. It should be many sections long.
 */
#include "lockwright_policy.h"

/* The machine may have more nodes: they share turns. */
#define NODES 32

const volatile __u32 slice_ns = 15000;

/* Hints: threads change them without agreement. */
static __u32 period;                /* rounds of NODES slices */
static __u32 nodes_now, nodes_last; /* sets: which nodes contend in this period, and did in the last one */

LW_HOOK(lock_contended)
{
    __u32 node = ctx->own.numa % NODES, bit = 1U << node;
    __u32 turn, nodes, count, place, away, ns;
    __u64 now;

    if ((nodes_now | nodes_last) == bit)
        return 0; /* no other node contends */
    now = lw_now();
    turn = now / slice_ns;
    if (turn / NODES != period) {
        nodes_last = turn / NODES == period + 1 ? nodes_now : 0;
        nodes_now = 0;
        period = turn / NODES;
    }
    if (!(nodes_now & bit))
        nodes_now |= bit;
    nodes = nodes_now | nodes_last | bit;
    count = __builtin_popcount(nodes);
    place = __builtin_popcount(nodes & (bit - 1));
    away = (place + count - turn % count) % count;
    if (away == 0)
        return 0;
    ns = away * slice_ns - (__u32)(now % slice_ns);
    return ns > LW_LONGEST_NS ? 0 : ns;
}
