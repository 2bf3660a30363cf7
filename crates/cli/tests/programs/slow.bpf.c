/* A policy that makes every program slower: each holder counts to 500. Compiled: slow.bpf.o. */
#include "lockwright_policy.h"

LW_HOOK(lock_acquired)
{
    volatile __u64 count = 0;

    while (count < 500)
        count += 1;
    return 0;
}
