/*
 * A policy that calls a function, for the tests.
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -I../../policies -c calls.bpf.c && llvm-strip --strip-debug calls.bpf.o
 */
#include "lockwright_policy.h"

static __attribute__((noinline)) int score(__u64 wait_ns)
{
    return lw_log2(wait_ns) > 20;
}

LW_HOOK(cmp_node)
{
    return score(ctx->curr.wait_ns) + score(ctx->best.wait_ns);
}
