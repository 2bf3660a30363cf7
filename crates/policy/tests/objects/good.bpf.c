/*
 * A policy that uses what policies may use, for the tests.
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -I../../policies -c good.bpf.c && llvm-strip --strip-debug good.bpf.o
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

struct {
    __uint(type, LW_PERCPU_ARRAY);
    __type(key, __u32);
    __type(value, __u64[8]);
    __uint(max_entries, 2);
} counts LW_MAP;

struct {
    __uint(type, LW_RINGBUF);
    __uint(max_entries, 4096);
} ring LW_MAP;

__u64 asked;
__u32 limit = 7;
static __u64 rounds[4];
const volatile __u32 weights[4] = { 1, 2, 3, 4 };

LW_HOOK(cmp_node)
{
    __u64 key = ctx->curr.tid;
    struct mine *mine = lw_lookup(&threads, &key);
    if (!mine)
        return LW_NO;
    mine->total += 1;
    __sync_fetch_and_add(&asked, 1);
    rounds[ctx->round & 3] += weights[ctx->batch & 3];
    return mine->last[ctx->round & 3] < limit ? LW_NEXT : LW_BETTER;
}

LW_HOOK(schedule_waiter)
{
    __u32 bits = 0;
    for (int i = 0; i < 16; i++)
        bits += lw_log2(ctx->now_ns >> i);
    return bits > 100 ? LW_PARK : LW_SPIN;
}

LW_HOOK(lock_contended)
{
    __u64 ns = ctx->avg_cs_ns * 2;
    return ns > 1000000 ? 1000000 : ns;
}

LW_HOOK(lock_acquired)
{
    struct {
        __u64 now;
        __u32 tid, cpu;
    } record = { lw_now(), ctx->own.tid, lw_cpu() };
    lw_report(&ring, &record, sizeof(record), 0);
    __u32 zero = 0;
    __u64 *count = lw_lookup(&counts, &zero);
    int prio = ctx->own.prio;
    if (count && prio >= 0 && prio < 8)
        count[prio]++;
    return 0;
}
