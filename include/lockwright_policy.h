/*
 * Lock policies in C, compiled to eBPF:
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -I include -c big_first.bpf.c -o big_first.bpf.o
 *     lockwright policy check big_first.bpf.o
 *
 * A policy is a file with a function for each hook that it needs, and maps:
 *
 *     #include "lockwright_policy.h"
 *
 *     LW_HOOK(cmp_node)
 *     {
 *         return ctx->curr.core_class < ctx->own.core_class;
 *     }
 *
 * A hook answers; it changes no lock. What an answer means stands at the hook. Answers out of range count as 0. Hooks may not loop without
 * a bound, sleep, or allocate. The layouts only grow, at their ends.
 */
#ifndef LOCKWRIGHT_POLICY_H
#define LOCKWRIGHT_POLICY_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;

/* Flags of a thread. */
enum {
    LW_ASLEEP = 1,   /* it sleeps, or is about to */
    LW_OFF_CPU = 2,  /* it waits awake, but seems to have lost its CPU */
    LW_IN_EPOCH = 4, /* it is in an epoch */
    LW_READER = 8,   /* rw_bias: it asks to read */
};

/* A thread that waits, or asks. */
struct lw_node {
    __u32 tid;         /* the kernel's thread id */
    __u32 cpu;         /* the CPU on which it asked */
    __u32 numa;        /* that CPU's NUMA node, or cluster */
    __u32 core_class;  /* the class of its core; 0: the fastest */
    __s32 prio;        /* nice 1 to 19: -1 to -19; real-time: 1 to 99; 0: normal */
    __u32 flags;       /* LW_... */
    __u32 speed;       /* the speed of its core, in 1024ths of the fastest */
    __u32 passed;      /* how many waiters have been moved past it */
    __u64 wait_ns;     /* how long it has waited */
    __u64 cs_ns;       /* how long its section usually lasts on a core like its own; 0: not known */
    __u64 cs_total_ns; /* how long it has held locks that run on policies with lock_acquired and lock_release */
    __u32 held_locks;  /* how many such locks it holds */
    __u32 window_ns;   /* the reorder window of its epoch; 100 ms outside epochs */
    __u64 slo_ns;      /* the SLO of its epoch; 0: none */
    __u64 tag;         /* what somebody has tagged it with (lockwright policy tag); 0: nothing */
};

/* What a hook is told. Only to be read. */
struct lw_ctx {
    __u64 reserved;
    __u64 lock_id;      /* the lock's address */
    __u32 lock_kind;    /* 0: a plain mutex, 1: recursive, 2: error-checking, 3: a readers-writer lock */
    __u32 round;        /* cmp_node: the place of curr, from 0 */
    __u32 batch;        /* cmp_node: how many waiters have been moved past the next in line */
    __u32 nwaiters;     /* how many threads wait in line; a hint */
    __u64 now_ns;       /* the clock; 0 in lock_contended and in hooks that are asked while the lock is free */
    __u64 avg_cs_ns;    /* how long the lock is usually held on the fastest cores; 0: not known */
    struct lw_node own; /* the thread that asks */
    struct lw_node best; /* cmp_node: the best so far; at first the next in line */
    struct lw_node curr; /* cmp_node: the waiter in question */
};

/* Answers of cmp_node: should curr be next? */
enum {
    LW_NO = 0,
    LW_NEXT = 1,   /* it is; look no further */
    LW_BETTER = 2, /* it is better than best; look on */
    LW_GROUP = 3,  /* it goes first, with all others that get this answer; look on */
};
/* Answers of schedule_waiter. */
enum { LW_SPIN = 0 /* as the lock does */, LW_PARK = 1, LW_WAKE_EARLY = 2, LW_BOOST = 3 /* the holder */ };
/* The largest answer of lock_contended, ns. */
#define LW_LONGEST_NS 100000000
/* Answers of rw_bias, which only count from readers. A writer that had to wait for distributed readers (own.wait_ns) has ended that.
 * LW_NOT_FOR_IT: the policy isn't for this lock, and the one that was loaded before it is asked. */
enum { LW_AS_IS = 0, LW_DISTRIBUTED = 1, LW_NEUTRAL = 2, LW_NOT_FOR_IT = 3 };

#define LW_SECTION(name) __attribute__((section(name), used))
#define LW_HOOK(hook) LW_SECTION("tp/lockwright/" #hook) int hook(const struct lw_ctx *ctx __attribute__((unused)))
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Maps, as in the kernel's BTF-defined maps:
 *     struct { __uint(type, LW_HASH); __type(key, __u64); __type(value, struct mine); __uint(max_entries, 1024); } name LW_MAP;
 */
#define LW_MAP LW_SECTION(".maps")
#ifndef __uint
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#endif
enum { LW_HASH = 1, LW_ARRAY = 2, LW_PERCPU_ARRAY = 6, LW_RINGBUF = 27 };

/* Helpers. The numbers below 0x10000 are the kernel's. */
static void *(*const lw_lookup)(void *map, const void *key) = (void *)1;               /* NULL: there is none */
static long (*const lw_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const lw_delete)(void *map, const void *key) = (void *)3;
static __u64 (*const lw_now)(void) = (void *)5;                                       /* ns */
static __u32 (*const lw_cpu)(void) = (void *)8;
static __u64 (*const lw_pid_tgid)(void) = (void *)14;                                 /* process << 32 | thread */
static __u32 (*const lw_numa)(void) = (void *)42;
static long (*const lw_report)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130; /* to `lockwright policy stats` */
static __u64 (*const lw_tag)(__u32 tid) = (void *)0x10000;
static __s32 (*const lw_prio)(__u32 tid) = (void *)0x10001;
static __u32 (*const lw_log2)(__u64 value) = (void *)0x10002;                         /* 0 for 0 */
static __u32 (*const lw_class)(void) = (void *)0x10003;
/* The value of this key of a hash; a new one is all zeroes. NULL: the map is full, or busy. */
static void *(*const lw_storage)(void *map, const void *key) = (void *)0x10004;

#endif
