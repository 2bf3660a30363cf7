#include "lockwright_policy.h"

static __attribute__((noinline)) int is_long(__u64 ns)
{
    return ns > 1000;
}

LW_HOOK(cmp_node)
{
    return is_long(ctx->curr.wait_ns);
}
