/*
 * NAME: a policy for locks. lockwright_policy.h, beside this file, has all that a policy is told and may answer.
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -c NAME.bpf.c -o NAME.bpf.o
 *     lockwright policy check NAME.bpf.o
 *     lockwright policy run NAME.bpf.o --machine m1
 *     lockwright policy load NAME.bpf.o --pid PID --lock LOCK --guard 5s
 *
 * Keep the hooks that you need: each costs time where it is asked. A hook that isn't here is answered with 0, which always means: as
 * the lock does by itself.
 */
#include "lockwright_policy.h"

/* Numbers like this one can be changed without a compiler: --set most_ns=1ms */
const volatile __u64 most_ns = 2000000;

/*
 * The waiter `own` is about to be first in line, and chooses who follows it. It looks at those behind it, in order. Should `curr` be next?
 * `best` is its choice so far; at first, whoever is next by now.
 *
 * LW_NO; LW_NEXT: yes, look no further; LW_BETTER: rather than `best`, but look on; LW_GROUP: first, with all others that get this
 * answer.
 *
 * This one: threads on the fastest cores first, but nobody who has waited for most_ns is passed.
 */
LW_HOOK(cmp_node)
{
    if (ctx->best.wait_ns > most_ns)
        return LW_NO;
    return ctx->curr.core_class < ctx->best.core_class ? LW_BETTER : LW_NO;
}

#if 0 /* The other hooks. Move those that you need above this line. */

/* Should `own` leave the order as it is, without a look at anybody? 0: no. 1: yes. */
LW_HOOK(skip_shuffle)
{
    return ctx->batch > 16;
}

/*
 * How should `own` wait until it is first? LW_SPIN: as the lock does. LW_PARK: asleep. LW_WAKE_EARLY: asleep, but awake before its turn.
 * LW_BOOST: as the lock does, and the holder gets the priority of `own` until it releases.
 */
LW_HOOK(schedule_waiter)
{
    return ctx->nwaiters > 4 ? LW_PARK : LW_SPIN;
}

/* `own` has found the lock taken. For how many ns does it stand by before it joins the line? At most 100 ms. */
LW_HOOK(lock_contended)
{
    __u64 ns = 2 * ctx->avg_cs_ns;

    if (ctx->own.core_class == 0)
        return 0;
    return ns < LW_LONGEST_NS ? ns : LW_LONGEST_NS;
}

/*
 * `own` asks for the lock, whether or not it is free. 0: as the lock does. 1: it may take a free lock past the line.
 * This hook and the next two slow every lock and unlock, also where nobody waits.
 */
LW_HOOK(lock_acquire)
{
    return 0;
}

/* A map, which the policy's hooks share, and `lockwright policy stats` shows: how often each thread had the lock. */
struct {
    __uint(type, LW_HASH);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 256);
} taken LW_MAP;

/* `own` has the lock. The answer is 0. */
LW_HOOK(lock_acquired)
{
    __u32 tid = ctx->own.tid;
    __u64 *count = lw_storage(&taken, &tid);

    if (count)
        *count += 1;
    return 0;
}

/* `own` is about to release the lock. The answer is 0. */
LW_HOOK(lock_release)
{
    return 0;
}

/* Readers-writer locks: LW_AS_IS; LW_DISTRIBUTED: readers count in lines of their own; LW_NEUTRAL: they don't. */
LW_HOOK(rw_bias)
{
    return LW_AS_IS;
}

#endif
