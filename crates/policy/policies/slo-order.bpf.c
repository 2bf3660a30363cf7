/*
 * slo-order: a thread on a slower core stands by for its epoch's window before it joins the line, so big cores go first as often as
 * the epoch's SLO allows.
 *
 * LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, algorithms 1 to 3. The runtime's feedback finds the window.
 *
 * Bound: the window, 100 ms at most; then the thread is in the line, which this policy leaves in its order. A thread that stands by
 * takes the lock if it finds it free.
 * Tune: most_ns, ns: a limit for windows; outside epochs the window is this long.
 */
#include "lockwright_policy.h"

const volatile __u32 most_ns = 100000000;

LW_HOOK(lock_contended)
{
    __u32 window = ctx->own.window_ns;

    if (ctx->own.core_class == 0)
        return 0;
    if (window > most_ns)
        window = most_ns;
    return window < LW_LONGEST_NS ? window : LW_LONGEST_NS;
}
