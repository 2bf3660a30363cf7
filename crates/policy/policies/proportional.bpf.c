/*
 * proportional: little cores get one turn for every ten of big cores.
 *
 * SHFL-PB10, in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4. It counts turns; here little cores' turns are
 * booked ahead, one for each time that ten sections of big cores take. A thread on a little core stands by until its turn.
 *
 * Bound: the turns booked before, 100 ms at most; then the thread is in line. It takes the lock before its turn if it finds it free.
 * Tune: big_turns; hand_over_ns: what passing the lock on takes, on top of a section.
 */
#include "lockwright_policy.h"

const volatile __u32 big_turns = 10;
const volatile __u32 hand_over_ns = 150;

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, __u64); /* when the next turn of a little core begins */
    __uint(max_entries, 1024);
} next_turn LW_MAP;

LW_HOOK(lock_contended)
{
    __u64 lock = ctx->lock_id, now = lw_now(), speed = ctx->own.speed, *next, turn, wait;

    if (ctx->own.core_class == 0 || speed == 0)
        return 0;
    next = lw_storage(&next_turn, &lock);
    if (!next)
        return 0;
    turn = *next > now ? *next : now;
    /* The turn itself takes time, too. */
    *next = turn + big_turns * (ctx->avg_cs_ns + hand_over_ns) + ctx->avg_cs_ns * 1024 / speed;
    wait = turn - now;
    return wait < LW_LONGEST_NS ? wait : LW_LONGEST_NS;
}

LW_HOOK(cmp_node)
{
    if (ctx->curr.core_class != 0)
        return LW_NO;
    return ctx->round == 0 ? LW_NEXT : LW_GROUP;
}
