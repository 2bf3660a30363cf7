/*
 * proportional: little cores get one turn for every ten of big cores.
 *
 * SHFL-PB10, in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4. It counts turns; here, as in the lock pb10,
 * little cores' turns are booked ahead, one for each round: the time in which ten threads on big cores find the lock taken. A thread on
 * a little core stands by until its turn.
 *
 * Bound: the turns booked before, 100 ms at most; then the thread is in line. It takes the lock before its turn if it finds it free.
 * Tune: big_turns.
 */
#include "lockwright_policy.h"

const volatile __u32 big_turns = 10;

/* One thread on a big core in this many is counted. */
#define SAMPLE 16
/* A count changes the average by the difference divided by this. */
#define PART 8
/* If a count takes this many times as long as usual, threads on big cores no longer ask. */
#define STALE 4

struct turns {
    __u64 count; /* how many threads on big cores have been counted */
    __u64 since; /* since when; 0: nobody has been */
    __u64 round; /* how long a round usually takes, ns; 0: not known */
    __u64 next;  /* when the next turn of a little core begins */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct turns);
    __uint(max_entries, 1024);
} turns_at LW_MAP;

static __always_inline void learn(struct turns *turns, __u64 took)
{
    __u64 round = turns->round;

    /* The lock may have been idle in between. */
    if (round != 0 && took > 2 * round)
        took = 2 * round;
    turns->round = round != 0 ? round - round / PART + took / PART : took;
}

LW_HOOK(lock_contended)
{
    __u64 lock = ctx->lock_id, now = lw_now(), ahead, then;
    struct turns *turns;

    if (ctx->own.core_class == 0 && now / 64 % SAMPLE != 0)
        return 0;
    turns = lw_storage(&turns_at, &lock);
    if (!turns)
        return 0;
    if (ctx->own.core_class == 0) {
        if (turns->since != 0) {
            if (++turns->count < big_turns)
                return 0;
            learn(turns, (now - turns->since) / SAMPLE);
        }
        turns->since = now;
        turns->count = 0;
        return 0;
    }
    if (turns->round == 0 || now - turns->since > STALE * SAMPLE * turns->round)
        return 0;
    ahead = turns->next > now ? turns->next - now : 0;
    then = ahead + turns->round;
    turns->next = now + (then < LW_LONGEST_NS ? then : LW_LONGEST_NS);
    return ahead < LW_LONGEST_NS ? ahead : LW_LONGEST_NS;
}
