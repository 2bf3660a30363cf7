/*
 * pi: priority inheritance. The holder gets the priority of the waiters behind it, and they go by priority.
 *
 * L. Sha, R. Rajkumar, J. P. Lehoczky, Priority Inheritance Protocols, IEEE Transactions on Computers 39(9), 1990. The policy asks;
 * the runtime raises the holder's priority until it releases the lock. It may do so only with CAP_SYS_NICE or a limit (RLIMIT_NICE,
 * RLIMIT_RTPRIO); otherwise nothing is raised.
 *
 * Bound: a waiter that has been passed `most_passed` times is next. The lock's own `bypass` holds too.
 * Tune: least_prio: waiters below this priority boost nobody (nice 1 to 19 is -1 to -19, real-time 1 to 99); most_passed.
 */
#include "lockwright_policy.h"

const volatile __s32 least_prio = 1;
const volatile __u32 most_passed = 100;

LW_HOOK(schedule_waiter)
{
    return ctx->own.prio >= least_prio ? LW_BOOST : LW_SPIN;
}

LW_HOOK(cmp_node)
{
    if (ctx->round == 0 && ctx->curr.passed >= most_passed)
        return LW_NEXT;
    return ctx->curr.prio > ctx->best.prio ? LW_BETTER : LW_NO;
}
