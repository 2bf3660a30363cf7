/* What the verifier rejects: a loop without an end, and a value that may be NULL. Compiled: endless.bpf.o. */
#include "lockwright_policy.h"

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, __u64);
    __uint(max_entries, 16);
} seen LW_MAP;

LW_HOOK(cmp_node)
{
    __u64 lock = ctx->lock_id, *count = lw_lookup(&seen, &lock);

    *count += 1;
    return LW_NO;
}

LW_HOOK(lock_contended)
{
    volatile __u64 round = 1;

    while (round)
        round += 1;
    return 0;
}
