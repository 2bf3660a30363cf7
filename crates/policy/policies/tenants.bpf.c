/*
 * tenants: tenants share the lock's time by their weights, however many threads each has.
 *
 * The shares of cgroups, for locks: as scl (Y. Patel et al., EuroSys 2020), with a tenant in place of a thread. A thread's tag names
 * its tenant, in the lower 32 bits, and the tenant's weight, in the upper 32 (0 counts as 1). `lockwright policy tag TID
 * $((2 << 32 | 7))`: tenant 7, with twice the share of a weight of 1. Threads without a tag are one more tenant.
 *
 * Bound: a thread stands by for `most_ns` at most, and takes the lock if it finds it free. In line, the lock's own `bypass` holds.
 * Nobody is owed more than `credit_ns`, so a tenant that was idle doesn't keep the others out for long.
 * Tune, all in ns: slice_ns: smaller differences don't count; credit_ns; most_ns; period_ns: who hasn't asked for two such periods is
 * not waited for.
 *
 * Two tenants share an account if their numbers fall on the same of 1024 places.
 */
#include "lockwright_policy.h"

const volatile __u64 slice_ns = 500000;
const volatile __u64 credit_ns = 20000000;
const volatile __u64 most_ns = 20000000;
const volatile __u64 period_ns = 10000000;

/* What a tenant, divided by its weight has used of a lock. */
struct account {
    __u64 used;
};

struct {
    __uint(type, LW_ARRAY);
    __type(key, __u32);
    __type(value, struct account);
    __uint(max_entries, 1024);
} accounts LW_MAP;

struct lock {
    __u64 most;  /* the fullest account */
    __u64 least; /* the emptiest of those that asked in this period */
    __u64 last;  /* and in the one before */
    __u64 since; /* when this period began */
    __u64 taken; /* when the holder took the lock */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct lock);
    __uint(max_entries, 1024);
} locks LW_MAP;

static __always_inline struct account *account_of(__u64 lock, const struct lw_node *node)
{
    __u64 id = (__u32)node->tag;
    __u32 place = ((lock ^ id << 32) * 0x9e3779b97f4a7c15ULL) >> 54;

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
    __u64 id = ctx->lock_id, now = lw_now(), used, least, ahead;
    struct lock *lock = lw_storage(&locks, &id);
    struct account *mine = account_of(id, &ctx->own);

    if (!lock || !mine)
        return 0;
    forgive(mine, lock);
    used = mine->used;
    if (now - lock->since >= period_ns) {
        lock->last = now - lock->since < 2 * period_ns ? lock->least : used;
        lock->least = used;
        lock->since = now;
    }
    if (used < lock->least)
        lock->least = used;
    least = lock->last < lock->least ? lock->last : lock->least;
    ahead = used - least;
    if (used < least || ahead < slice_ns)
        return 0;
    if (ahead > most_ns)
        ahead = most_ns;
    return ahead < LW_LONGEST_NS ? ahead : LW_LONGEST_NS;
}

LW_HOOK(cmp_node)
{
    struct account *curr = account_of(ctx->lock_id, &ctx->curr), *best = account_of(ctx->lock_id, &ctx->best);

    if (!curr || !best)
        return LW_NO;
    return curr->used + slice_ns < best->used ? LW_BETTER : LW_NO;
}

LW_HOOK(lock_acquired)
{
    __u64 id = ctx->lock_id;
    struct lock *lock = lw_storage(&locks, &id);

    if (lock)
        lock->taken = lw_now();
    return 0;
}

LW_HOOK(lock_release)
{
    __u64 id = ctx->lock_id;
    struct lock *lock = lw_storage(&locks, &id);
    struct account *mine = account_of(id, &ctx->own);

    if (!lock || !mine || !lock->taken)
        return 0;
    forgive(mine, lock);
    mine->used += (lw_now() - lock->taken) / (ctx->own.tag >> 32 ? ctx->own.tag >> 32 : 1);
    lock->taken = 0;
    if (mine->used > lock->most)
        lock->most = mine->used;
    return 0;
}
