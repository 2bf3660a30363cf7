/*
 * tenants: tenants share the lock's time by their weights, however many threads each has.
 *
 * The shares of cgroups, for locks: as scl (Y. Patel et al., EuroSys 2020), with a tenant in place of a thread. A thread's tag names
 * its tenant, in the lower 32 bits, and the tenant's weight, in the upper 32 (0 counts as 1). `lockwright policy tag TID
 * $((2 << 32 | 7)) --pid PID`: tenant 7, with twice the share of a weight of 1. `tag --cgroup`: a tenant for each cgroup.
 *
 * Bound: a thread stands by for `most_ns` at most, and takes the lock if it finds it free. In line, the lock's own `bypass` holds.
 * Nobody is owed more than `credit_ns`, so a tenant that was idle doesn't keep the others out for long.
 * Tune, all in ns: slice_ns: smaller differences don't count; credit_ns; most_ns; period_ns: who hasn't asked for this long is not waited
 * for.
 */
#include "lockwright_policy.h"

const volatile __u64 slice_ns = 500000;
const volatile __u64 credit_ns = 20000000;
const volatile __u64 most_ns = 20000000;
const volatile __u64 period_ns = 20000000;

struct key {
    __u64 lock;
    __u64 tenant;
};

/* What a tenant has used of a lock, divided by its weight. */
struct account {
    __u64 used;
};

struct {
    __uint(type, LW_HASH);
    __type(key, struct key);
    __type(value, struct account);
    __uint(max_entries, 4096);
} accounts LW_MAP;

struct lock {
    __u64 most;    /* the fullest account */
    __u64 taken;   /* when the holder took the lock */
    __u64 asked;   /* when the tenant with the emptiest account asked last */
    __u64 poorest; /* that tenant */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct lock);
    __uint(max_entries, 1024);
} locks LW_MAP;

static __always_inline struct lock *lock_of(const struct lw_ctx *ctx)
{
    __u64 id = ctx->lock_id;

    return lw_storage(&locks, &id);
}

static __always_inline __u64 tenant_of(const struct lw_node *node)
{
    return (__u32)node->tag;
}

static __always_inline struct account *account_of(__u64 lock, __u64 tenant)
{
    struct key key = { lock, tenant };

    return lw_storage(&accounts, &key);
}

/* Nobody is owed more than the credit. */
static __always_inline void forgive(struct account *account, const struct lock *lock)
{
    if (account->used + credit_ns < lock->most)
        account->used = lock->most - credit_ns;
}

/* How long does the thread stand by, so that tenants who use the lock less come first? */
LW_HOOK(lock_contended)
{
    __u64 now = lw_now(), place = tenant_of(&ctx->own), poorest, ahead;
    struct lock *lock = lock_of(ctx);
    struct account *mine, *other;

    if (!lock)
        return 0;
    poorest = lock->poorest;
    mine = account_of(ctx->lock_id, place);
    other = account_of(ctx->lock_id, poorest);
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
    __u64 lock = ctx->lock_id, tenant = tenant_of(&ctx->curr), other = tenant_of(&ctx->best);
    struct account *curr, *best;

    if (tenant == other)
        return LW_NO;
    curr = account_of(lock, tenant);
    best = account_of(lock, other);
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
    __u64 weight = ctx->own.tag >> 32;

    if (!lock || !lock->taken)
        return 0;
    mine = account_of(ctx->lock_id, tenant_of(&ctx->own));
    if (!mine)
        return 0;
    forgive(mine, lock);
    mine->used += (lw_now() - lock->taken) / (weight ? weight : 1);
    lock->taken = 0;
    if (mine->used > lock->most)
        lock->most = mine->used;
    return 0;
}
