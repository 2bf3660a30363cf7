/*
 * scl: threads get equal shares of the lock's time, however long their sections are.
 *
 * Y. Patel, L. Yang, L. Arulraj, A. C. Arpaci-Dusseau, R. H. Arpaci-Dusseau, M. M. Swift, Avoiding Scheduler Subversion using
 * Scheduler-Cooperative Locks (SCL), EuroSys 2020. A waiter that has held the lock for a shorter time goes before one that has held it
 * for longer. A thread that is ahead of the others who ask stands by until they have caught up. (SCL bans it, even from a free lock.)
 *
 * Bound: a thread stands by for `most_ns` at most, and takes the lock if it finds it free. In line, the lock's own `bypass` holds.
 * Nobody is owed more than `credit_ns`, so a new thread doesn't keep the others out for long.
 * Tune, all in ns: slice_ns: smaller differences don't count; credit_ns; most_ns; period_ns: who hasn't asked for this long is not waited
 * for.
 *
 * Threads whose numbers differ by a multiple of 4096 share an account; threads of several locks may, too.
 */
#include "lockwright_policy.h"

const volatile __u64 slice_ns = 500000;
const volatile __u64 credit_ns = 20000000;
const volatile __u64 most_ns = 20000000;
const volatile __u64 period_ns = 20000000;

/* What a thread has used of a lock. */
struct account {
    __u64 used;
};

#define ACCOUNTS 4096

struct {
    __uint(type, LW_ARRAY);
    __type(key, __u32);
    __type(value, struct account);
    __uint(max_entries, ACCOUNTS);
} accounts LW_MAP;

struct lock {
    __u64 most;    /* the fullest account */
    __u64 taken;   /* when the holder took the lock */
    __u64 asked;   /* when the thread with the emptiest account asked last */
    __u32 poorest; /* that account's place */
    __u32 number;  /* of the lock, from 1 */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct lock);
    __uint(max_entries, 1024);
} locks LW_MAP;

__u32 locks_seen;

static __always_inline struct lock *lock_of(const struct lw_ctx *ctx)
{
    __u64 id = ctx->lock_id;
    struct lock *lock = lw_storage(&locks, &id);

    if (lock && !lock->number)
        lock->number = ++locks_seen;
    return lock;
}

/* Threads of one process have numbers that follow each other. */
static __always_inline __u32 place_of(const struct lock *lock, const struct lw_node *node)
{
    return (node->tid + lock->number * 1031) % ACCOUNTS;
}

static __always_inline struct account *account_of(const struct lock *lock, const struct lw_node *node)
{
    __u32 place = place_of(lock, node);

    return lw_lookup(&accounts, &place);
}

/* Nobody is owed more than the credit. */
static __always_inline void forgive(struct account *account, const struct lock *lock)
{
    if (account->used + credit_ns < lock->most)
        account->used = lock->most - credit_ns;
}

/* How long does the thread stand by, so that others who use the lock less come first? */
LW_HOOK(lock_contended)
{
    __u64 now = lw_now(), ahead;
    struct lock *lock = lock_of(ctx);
    struct account *mine, *other;
    __u32 place, poorest;

    if (!lock)
        return 0;
    place = place_of(lock, &ctx->own);
    poorest = lock->poorest;
    mine = lw_lookup(&accounts, &place);
    other = lw_lookup(&accounts, &poorest);
    if (!mine || !other)
        return 0;
    forgive(mine, lock);
    if (place == poorest || mine->used <= other->used || now - lock->asked > period_ns) {
        lock->poorest = place;
        lock->asked = now;
        return 0;
    }
    ahead = mine->used - other->used;
    if (ahead < slice_ns)
        return 0;
    if (ahead > most_ns)
        ahead = most_ns;
    return ahead < LW_LONGEST_NS ? ahead : LW_LONGEST_NS;
}

LW_HOOK(cmp_node)
{
    struct lock *lock = lock_of(ctx);
    struct account *curr, *best;

    if (!lock || ctx->round == 0)
        return LW_NO;
    curr = account_of(lock, &ctx->curr);
    best = account_of(lock, &ctx->best);
    if (!curr || !best)
        return LW_NO;
    return curr->used + slice_ns < best->used ? LW_BETTER : LW_NO;
}

LW_HOOK(lock_acquired)
{
    struct lock *lock = lock_of(ctx);

    if (lock)
        lock->taken = lw_now();
    return 0;
}

LW_HOOK(lock_release)
{
    struct lock *lock = lock_of(ctx);
    struct account *mine;

    if (!lock || !lock->taken)
        return 0;
    mine = account_of(lock, &ctx->own);
    if (!mine)
        return 0;
    forgive(mine, lock);
    mine->used += lw_now() - lock->taken;
    lock->taken = 0;
    if (mine->used > lock->most)
        lock->most = mine->used;
    return 0;
}
