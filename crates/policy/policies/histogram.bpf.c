/*
 * histogram: counts waits by their length, and reports each that is longer than all before it. It changes no order.
 *
 * SynCord's `lockstat`: S. Park et al., Application-Informed Kernel Synchronization Primitives, OSDI 2022.
 * `lockwright policy stats` shows the counts and the reports.
 *
 * Bound: the order of the line is untouched.
 * Tune: least_ns, ns: shorter waits aren't reported.
 */
#include "lockwright_policy.h"

const volatile __u64 least_ns = 10000;

/* waits[n]: waits of 2^n ns or more, and less than 2^(n+1); waits[0]: also no wait at all. */
struct {
    __uint(type, LW_PERCPU_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 64);
} waits LW_MAP;

/* The longest wait so far, ns, of each lock. */
struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, __u64);
    __uint(max_entries, 1024);
} longest LW_MAP;

struct wait {
    __u64 lock;
    __u64 wait_ns;
    __u32 tid;
    __u32 cpu;
};

struct {
    __uint(type, LW_RINGBUF);
    __uint(max_entries, 65536);
} reports LW_MAP;

LW_HOOK(lock_acquired)
{
    __u64 lock = ctx->lock_id, ns = ctx->own.wait_ns, *count, *most;
    __u32 bucket = lw_log2(ns);

    count = lw_lookup(&waits, &bucket);
    if (count)
        *count += 1;
    if (ns < least_ns)
        return 0;
    most = lw_storage(&longest, &lock);
    if (most && ns > *most) {
        struct wait wait = { lock, ns, ctx->own.tid, ctx->own.cpu };

        *most = ns;
        lw_report(&reports, &wait, sizeof(wait), 0);
    }
    return 0;
}
