/*
 * A policy with a mistake in each hook, for the tests.
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -I../../policies -c bad.bpf.c && llvm-strip --strip-debug bad.bpf.o
 */
#include "lockwright_policy.h"

struct mine {
    __u64 total;
    __u32 last[4];
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct mine);
    __uint(max_entries, 1024);
} threads LW_MAP;

__u32 table[16];

LW_HOOK(cmp_node)
{
    __u64 key = ctx->curr.tid;
    struct mine *mine = lw_lookup(&threads, &key);
    return mine->last[3] & 1;
}

LW_HOOK(skip_shuffle)
{
    return table[ctx->round] & 1;
}

LW_HOOK(schedule_waiter)
{
    return ctx->own.prio;
}

LW_HOOK(lock_acquire)
{
    __u32 bits = 0;
    for (__u64 i = 0; i < ctx->nwaiters; i++)
        bits += lw_log2(ctx->now_ns >> i);
    return bits > 100;
}

LW_HOOK(lock_contended)
{
    return ctx->avg_cs_ns * 2;
}

LW_HOOK(lock_acquired)
{
    int prio = ctx->own.prio;
    if (prio > 15)
        return 0;
    table[prio] += 1;
    return 0;
}

LW_HOOK(lock_release)
{
    ((struct lw_ctx *)ctx)->own.tag = 1;
    return 0;
}

LW_HOOK(rw_bias)
{
    __u64 key = ctx->own.tid;
    struct mine *mine = lw_storage(&threads, &key);
    if (mine)
        mine->total = (__u64)ctx;
    return 0;
}
