/*
 * vcpu: a waiter that sleeps, or has lost its CPU, is passed over by those that can use the lock at once.
 *
 * S. Kashyap, C. Min, T. Kim, Opportunistic Spinlocks: Achieving Virtual Machine Scalability in the Clouds, OSR 2016, for waiters whose
 * virtual CPU does not run; here also for threads that the quota of their cgroup has stopped.
 *
 * Bound: a waiter that has waited for `most_ns`, or has been passed `most_passed` times, is next. The lock's own `bypass` holds too.
 * Tune: most_ns, ns; most_passed.
 */
#include "lockwright_policy.h"

const volatile __u64 most_ns = 10000000;
const volatile __u32 most_passed = 500;

LW_HOOK(cmp_node)
{
    __u32 is_ready = !(ctx->curr.flags & (LW_ASLEEP | LW_OFF_CPU));

    if (ctx->round == 0)
        return is_ready || ctx->curr.wait_ns >= most_ns || ctx->curr.passed >= most_passed ? LW_NEXT : LW_NO;
    return is_ready ? LW_NEXT : LW_NO;
}
