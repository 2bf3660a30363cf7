/*
 * proportional: little cores get one turn for every ten of big cores.
 *
 * SHFL-PB10, in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4.
 *
 * Bound: at most `big_turns` big cores' threads go before the first waiter on another core.
 * Tune: big_turns.
 */
#include "lockwright_policy.h"

const volatile __u32 big_turns = 10;

struct turns {
    __u32 given; /* turns of big cores since a little one's last */
    __u32 spent; /* the same, if the choice that has just begun finds a big core */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct turns);
    __uint(max_entries, 1024);
} turns_of LW_MAP;

LW_HOOK(cmp_node)
{
    __u32 is_big = ctx->curr.core_class == 0;
    __u64 lock = ctx->lock_id;
    struct turns *turns;

    if (ctx->round != 0 && !is_big)
        return LW_NO;
    turns = lw_storage(&turns_of, &lock);
    if (!turns)
        return LW_NO;
    if (ctx->round == 0 && !is_big) {
        /* A little core is next, unless there is a big one, and it is its turn. */
        turns->spent = turns->given;
        turns->given = 0;
        return turns->spent >= big_turns ? LW_NEXT : LW_NO;
    }
    turns->given = (ctx->round == 0 ? turns->given : turns->spent) + 1;
    return LW_NEXT;
}
