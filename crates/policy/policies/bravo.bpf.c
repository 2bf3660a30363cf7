/*
 * bravo: readers of a lock that is mostly read use distributed readers; readers of any other lock don't.
 *
 * D. Dice, A. Kogan, BRAVO: Biased Locking for Reader-Writer Locks, USENIX ATC 2019; switched on and off while the program runs, as in
 * S. Park et al., Contextual Concurrency Control, HotOS 2021, section 4. BRAVO is neutral for a while after a writer had to wait for
 * distributed readers; here the counts of reads and writes decide.
 *
 * Bound: a writer waits for the readers that are there, as without a policy.
 * Tune: on_reads: with more reads than this for each write, readers are distributed; off_reads: with fewer, they are not any more;
 * window: the number of requests after which that is decided.
 */
#include "lockwright_policy.h"

const volatile __u32 on_reads = 200;
const volatile __u32 off_reads = 50;
const volatile __u32 window = 4096;

/* A CPU counts this many requests by itself, so that readers don't share a line only because they are counted. */
#define OWN 64

struct own {
    __u64 lock;
    __u32 reads;
    __u32 writes;
};

struct {
    __uint(type, LW_PERCPU_ARRAY);
    __type(key, __u32);
    __type(value, struct own);
    __uint(max_entries, 64);
} owns LW_MAP;

struct lock {
    __u32 reads;
    __u32 writes;
    __u32 is_read;    /* mostly */
    __u32 is_written; /* too often */
};

struct {
    __uint(type, LW_HASH);
    __type(key, __u64);
    __type(value, struct lock);
    __uint(max_entries, 1024);
} locks LW_MAP;

static __always_inline void decide(struct lock *lock)
{
    if (lock->reads > lock->writes * on_reads) {
        lock->is_read = 1;
    } else if (lock->reads < lock->writes * off_reads) {
        lock->is_read = 0;
        lock->is_written = 1;
    }
    lock->reads = lock->writes = 0;
}

LW_HOOK(rw_bias)
{
    __u64 id = ctx->lock_id;
    __u32 place = (id * 0x9e3779b97f4a7c15ULL) >> 58;
    struct own *own = lw_lookup(&owns, &place);
    struct lock *lock = lw_storage(&locks, &id);

    if (!own || !lock)
        return LW_AS_IS;
    if (own->lock != id) {
        own->lock = id;
        own->reads = own->writes = 0;
    }
    if (ctx->own.flags & LW_READER)
        own->reads += 1;
    else
        own->writes += 1;
    if (own->reads + own->writes >= OWN) {
        lock->reads += own->reads;
        lock->writes += own->writes;
        own->reads = own->writes = 0;
        if (lock->reads + lock->writes >= window)
            decide(lock);
    }
    return lock->is_read ? LW_DISTRIBUTED : lock->is_written ? LW_NEUTRAL : LW_AS_IS;
}
