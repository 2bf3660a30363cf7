/*
 * histogram: counts waits by their length, and reports each that is longer than all before it at its lock. It changes no order.
 *
 * SynCord's `lockstat`: S. Park et al., Application-Informed Kernel Synchronization Primitives, OSDI 2022.
 * `lockwright policy stats --pid PID` shows the counts and the reports.
 *
 * Bound: the order of the line is untouched.
 * Tune: least_ns, ns: shorter waits aren't reported.
 */
#include "lockwright_policy.h"

const volatile __u64 least_ns = 10000;

#define THREADS 4096

/* When a thread asked for the lock that it waits for. Threads whose numbers differ by a multiple of 4096 share a place. */
struct {
    __uint(type, LW_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, THREADS);
} asked LW_MAP;

/* waits[n]: waits of 2^n ns or more, and less than 2^(n+1). */
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

LW_HOOK(lock_acquire)
{
    __u32 place = ctx->own.tid % THREADS;
    __u64 *when = lw_lookup(&asked, &place);

    if (when)
        *when = lw_now();
    return 0;
}

LW_HOOK(lock_acquired)
{
    __u32 place = ctx->own.tid % THREADS, bucket;
    __u64 lock = ctx->lock_id, ns, *when = lw_lookup(&asked, &place), *count, *most;

    if (!when || !*when)
        return 0;
    ns = lw_now() - *when;
    *when = 0;
    bucket = lw_log2(ns);
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
