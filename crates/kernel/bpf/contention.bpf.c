// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// What the kernel runs when a thread waits for one of its locks, or for a futex. It adds up waits in `waits`. The
// command reads that map when the observation ends (../src/observer.rs, whose structs mirror these).
//
// The stack is walked when a wait begins, because the waiter has nothing better to do. Code that runs when the wait ends
// delays the new holder, so it is kept short: one look-up for the wait, and one for its sum.
//
// `cargo xtask bpf` compiles this file. It needs clang, and no headers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define CORE __attribute__((preserve_access_index))

// Maps in the form that loaders expect: numbers are lengths of arrays.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, what) typeof(what) *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_STACK_TRACE = 7 };
enum { ANY = 0, NO_EXIST = 1 };
// Operations of futex() that wait, by bit: WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2.
#define FUTEX_WAITS (1 << 0 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13)

// The kernel's helper functions, by their numbers.
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_ns)(void) = (void *)5;
static u32 (*const random)(void) = (void *)7;
static u64 (*const current_pid_tgid)(void) = (void *)14;
static long (*const stack_id)(void *ctx, void *map, u64 flags) = (void *)27;
static struct task_struct *(*const current_task)(void) = (void *)158;

// How many frames to leave out: the program itself and the tracepoint's own functions.
#define SKIP 3
#define USER_STACK (1 << 8)
#define FRAMES 32
// Spinning waits are short, and a walk costs about 0.1 us per frame.
#define SPIN_FRAMES 10

// Bits of a kind: the kernel's LCB_F_*, and one of ours.
enum { SPIN = 1, READ = 2, WRITE = 4, RT = 8, PERCPU = 16, MUTEX = 32, FUTEX = 64 };

// The parts of the kernel's structs that we read; the loader adapts their offsets to the running kernel.
struct spinlock {} CORE;
struct rw_semaphore {
    struct spinlock wait_lock;
} CORE;
struct mutex {} CORE;
struct sighand_struct {
    struct spinlock siglock;
} CORE;
struct signal_struct {
    struct mutex cred_guard_mutex;
    struct rw_semaphore exec_update_lock;
} CORE;
struct files_struct {
    struct spinlock file_lock;
} CORE;
struct mm_struct {
    struct rw_semaphore mmap_lock;
    struct spinlock page_table_lock;
} CORE;
struct task_struct {
    s32 pid, tgid;
    struct mm_struct *mm;
    struct sighand_struct *sighand;
    struct signal_struct *signal;
    struct files_struct *files;
    struct spinlock alloc_lock;
    struct task_struct *group_leader;
    char comm[16];
} CORE;
// Two machines' registers; what follows ___ is not part of the name.
struct pt_regs___x86 {
    u64 di, si;
} CORE;
struct pt_regs___arm {
    u64 regs[31];
} CORE;
#define EXISTS(field) __builtin_preserve_field_info(field, 2)

// ---- What the command sets ----

// Kinds that count, as a bit mask.
const volatile u64 kinds = ~0ull;
// Do only processes in `chosen` count?
const volatile u8 choosy = 0;
// The number of the system call `futex`.
const volatile u64 futex_call = 202;

// ---- What it reads ----

// Waits of one length (a bucket of crates/contract/src/histogram.rs) for one lock by one caller.
struct key {
    u64 lock;
    s32 stack;
    u32 tgid; // of a lock of a process's own, which has a role, and of a futex; else 0
    u16 bucket;
    u8 kind;
    u8 role;
    u32 zero;
};

struct sum {
    u64 count, total_ns, max_ns;
};

// Locks that each process has.
enum { MMAP_LOCK = 1, MMAP_WAIT_LOCK, PAGE_TABLE_LOCK, SIGLOCK, FILE_LOCK, CRED_GUARD, EXEC_UPDATE, ALLOC_LOCK };

// A wait that hasn't ended.
struct pending {
    u64 lock, since_ns;
    s32 stack;
    u16 kind, role;
};

// Spinning waits nest, because an interrupt may wait while the interrupted task does: task, softirq, hardirq, NMI.
#define DEPTH 4
struct spinning {
    u32 depth;
    u32 zero;
    struct pending at[DEPTH];
};

enum { LOST_WAITS, LOST_NS, NO_STACK, UNSEEN, TALLIES };

struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 131072);
    TYPE(key, struct key);
    TYPE(value, struct sum);
} waits SEC(".maps");

// Names of processes with locks of their own.
struct name {
    char comm[16];
};
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 4096);
    TYPE(key, u32);
    TYPE(value, struct name);
} names SEC(".maps");

// Tasks that wait for a sleeping lock, by thread id.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 16384);
    TYPE(key, u32);
    TYPE(value, struct pending);
} sleeping SEC(".maps");

struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct spinning);
} spinners SEC(".maps");

// Threads in a futex call. Inside it they may also wait for kernel locks.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 16384);
    TYPE(key, u32);
    TYPE(value, struct pending);
} in_futex SEC(".maps");

// Processes with futex waits: the command looks at their mappings while they live.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 4096);
    TYPE(key, u32);
    TYPE(value, u32);
} futex_users SEC(".maps");

// Processes that count have 1. Our own process has 0: only its children count.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 16384);
    TYPE(key, u32);
    TYPE(value, u32);
} chosen SEC(".maps");

struct {
    NUMBER(type, MAP_STACK_TRACE);
    NUMBER(max_entries, 16384);
    NUMBER(key_size, sizeof(u32));
    NUMBER(value_size, FRAMES * sizeof(u64));
} stacks SEC(".maps");

struct {
    NUMBER(type, MAP_STACK_TRACE);
    NUMBER(max_entries, 16384);
    NUMBER(key_size, sizeof(u32));
    NUMBER(value_size, SPIN_FRAMES * sizeof(u64));
} spin_stacks SEC(".maps");

struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, TALLIES);
    TYPE(key, u32);
    TYPE(value, u64);
} tallies SEC(".maps");

// What we cost: histograms of our programs' run times, first for those at the beginning of waits, then for those at the end.
enum { BUCKETS = 1152, BEGIN = 0, END = BUCKETS };
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, 2 * BUCKETS);
    TYPE(key, u32);
    TYPE(value, u64);
} costs SEC(".maps");

INLINE void tally(u32 which, u64 more) {
    u64 *at = map_lookup(&tallies, &which);
    if (at)
        __sync_fetch_and_add(at, more);
}

INLINE int counts(u32 tgid) {
    if (!choosy)
        return 1;
    u32 *is = map_lookup(&chosen, &tgid);
    return is && *is;
}

// As `bucket` in crates/contract/src/histogram.rs.
INLINE u16 bucket(u64 ns) {
    u64 rest = ns | 32;
    u32 log = 0;
    if (rest >> 32) { log += 32; rest >>= 32; }
    if (rest >> 16) { log += 16; rest >>= 16; }
    if (rest >> 8) { log += 8; rest >>= 8; }
    if (rest >> 4) { log += 4; rest >>= 4; }
    if (rest >> 2) { log += 2; rest >>= 2; }
    log += rest >> 1;
    u32 shift = log - 5;
    u64 at = ((u64)shift << 5) + (ns >> shift);
    return at < BUCKETS ? at : BUCKETS - 1;
}

// Measures one run in eight, because measuring has a cost, too.
INLINE void cost(u32 place, u64 began) {
    if (random() & 7)
        return;
    u32 at = place + bucket(ktime_ns() - began);
    u64 *count = map_lookup(&costs, &at);
    if (count)
        __sync_fetch_and_add(count, 1);
}

// Which of the current process's own locks it is, if any. An address may be another process's lock a moment later.
INLINE u16 role(u64 lock) {
    struct task_struct *task = current_task();
    struct mm_struct *mm = task->mm;
    if (mm) {
        if (lock == (u64)&mm->mmap_lock)
            return MMAP_LOCK;
        if (lock == (u64)&mm->mmap_lock.wait_lock)
            return MMAP_WAIT_LOCK;
        if (lock == (u64)&mm->page_table_lock)
            return PAGE_TABLE_LOCK;
    }
    struct sighand_struct *sighand = task->sighand;
    if (sighand && lock == (u64)&sighand->siglock)
        return SIGLOCK;
    struct files_struct *files = task->files;
    if (files && lock == (u64)&files->file_lock)
        return FILE_LOCK;
    struct signal_struct *signal = task->signal;
    if (signal) {
        if (lock == (u64)&signal->cred_guard_mutex)
            return CRED_GUARD;
        if (lock == (u64)&signal->exec_update_lock)
            return EXEC_UPDATE;
    }
    return lock == (u64)&task->alloc_lock ? ALLOC_LOCK : 0;
}

// Notes the current process's name. Its threads may have other names.
INLINE void introduce(u32 tgid) {
    if (map_lookup(&names, &tgid))
        return;
    struct task_struct *leader = current_task()->group_leader;
    struct name name = {};
    if (leader)
#pragma unroll
        for (int i = 0; i < 16; i++)
            name.comm[i] = leader->comm[i];
    map_update(&names, &tgid, &name, ANY);
}

// Adds a wait that has ended.
INLINE void account(struct pending *wait, u32 tgid, u64 ns) {
    struct key key = {
        .lock = wait->lock,
        .stack = wait->stack,
        .tgid = wait->role || wait->kind == FUTEX ? tgid : 0,
        .bucket = bucket(ns),
        .kind = wait->kind,
        .role = wait->role,
    };
    struct sum *sum = map_lookup(&waits, &key);
    if (!sum) {
        struct sum none = {};
        // Another CPU may have added the entry meanwhile.
        map_update(&waits, &key, &none, NO_EXIST);
        sum = map_lookup(&waits, &key);
        if (!sum) {
            tally(LOST_WAITS, 1);
            tally(LOST_NS, ns);
            return;
        }
        if (key.tgid)
            introduce(key.tgid);
    }
    __sync_fetch_and_add(&sum->count, 1);
    __sync_fetch_and_add(&sum->total_ns, ns);
    // All waits in a bucket are within 3 % of each other, so if two race here, either may win.
    if (ns > sum->max_ns)
        sum->max_ns = ns;
}

SEC("tp_btf/contention_begin")
int contention_begin(u64 *ctx) {
    u64 now = ktime_ns(), lock = ctx[0];
    u32 flags = ctx[1];
    u64 ids = current_pid_tgid();
    u32 tid = ids, zero = 0;
    // A mutex's waiter spins first, then sleeps: one wait.
    u32 kind = flags & MUTEX ? MUTEX : flags & 63;
    if (!(kinds >> kind & 1) || !counts(ids >> 32))
        return 0;

    if ((flags & (SPIN | MUTEX)) == SPIN) {
        struct spinning *cpu = map_lookup(&spinners, &zero);
        if (!cpu)
            return 0;
        u32 depth = cpu->depth;
        if (depth >= DEPTH) {
            // We missed the ends of some waits: the kernel doesn't run a program within itself.
            tally(UNSEEN, DEPTH);
            depth = 0;
        }
        // First the depth, then the entry, so that an interrupt here takes the next one.
        *(volatile u32 *)&cpu->depth = depth + 1;
        struct pending *wait = &cpu->at[depth & (DEPTH - 1)];
        wait->lock = lock;
        wait->kind = kind;
        wait->role = role(lock);
        wait->stack = stack_id(ctx, &spin_stacks, SKIP);
        if (wait->stack < 0)
            tally(NO_STACK, 1);
        // A spinner joins the queue only when we are done, so our time is no wait. Sleepers mostly are in the queue by now.
        wait->since_ns = ktime_ns();
        cost(BEGIN, now);
        return 0;
    }

    struct pending *known = map_lookup(&sleeping, &tid);
    // The same wait goes on in another way.
    if (known && known->lock == lock)
        return 0;
    struct pending wait = {.lock = lock, .since_ns = now, .kind = kind, .role = role(lock)};
    wait.stack = stack_id(ctx, &stacks, SKIP);
    if (wait.stack < 0)
        tally(NO_STACK, 1);
    if (known)
        tally(UNSEEN, 1);
    if (map_update(&sleeping, &tid, &wait, ANY))
        tally(UNSEEN, 1);
    cost(BEGIN, now);
    return 0;
}

SEC("tp_btf/contention_end")
int contention_end(u64 *ctx) {
    u64 lock = ctx[0];
    u64 now = ktime_ns();
    u64 ids = current_pid_tgid();
    u32 tid = ids, tgid = ids >> 32, zero = 0;
    struct spinning *cpu = map_lookup(&spinners, &zero);
    if (!cpu)
        return 0;
    u32 depth = cpu->depth;
    if (depth) {
#pragma unroll
        for (int down = 1; down <= DEPTH; down++) {
            u32 at = depth - down;
            if (at >= DEPTH)
                break;
            if (cpu->at[at].lock == lock) {
                struct pending wait = cpu->at[at];
                *(volatile u32 *)&cpu->depth = at;
                account(&wait, tgid, now - wait.since_ns);
                cost(END, now);
                return 0;
            }
        }
    }
    struct pending *known = map_lookup(&sleeping, &tid);
    if (!known || known->lock != lock)
        return 0;
    struct pending wait = *known;
    map_delete(&sleeping, &tid);
    account(&wait, tgid, now - wait.since_ns);
    cost(END, now);
    return 0;
}

// ---- Futexes ----

// These two run at every system call of the machine, so they return at once if it is another one.

SEC("tp_btf/sys_enter")
int futex_begin(u64 *ctx) {
    if (ctx[1] != futex_call)
        return 0;
    u64 word, op;
    // The loader removes one of the branches, because its struct is not this machine's.
    if (EXISTS(((struct pt_regs___x86 *)0)->di)) {
        struct pt_regs___x86 *regs = (void *)ctx[0];
        word = regs->di;
        op = regs->si;
    } else if (EXISTS(((struct pt_regs___arm *)0)->regs)) {
        struct pt_regs___arm *regs = (void *)ctx[0];
        word = regs->regs[0];
        op = regs->regs[1];
    } else {
        return 0;
    }
    if (!(FUTEX_WAITS >> (op & 31) & 1))
        return 0;
    u64 ids = current_pid_tgid();
    u32 tid = ids, tgid = ids >> 32;
    if (!counts(tgid))
        return 0;
    u64 now = ktime_ns();
    struct pending wait = {.lock = word, .since_ns = now, .kind = FUTEX};
    wait.stack = stack_id(ctx, &stacks, USER_STACK);
    if (wait.stack < 0)
        tally(NO_STACK, 1);
    if (map_update(&in_futex, &tid, &wait, ANY))
        tally(UNSEEN, 1);
    if (!map_lookup(&futex_users, &tgid)) {
        u32 one = 1;
        map_update(&futex_users, &tgid, &one, ANY);
    }
    cost(BEGIN, now);
    return 0;
}

SEC("tp_btf/sys_exit")
int futex_end(u64 *ctx) {
    u64 ids = current_pid_tgid();
    u32 tid = ids, tgid = ids >> 32;
    struct pending *known = map_lookup(&in_futex, &tid);
    if (!known)
        return 0;
    u64 now = ktime_ns();
    struct pending wait = *known;
    map_delete(&in_futex, &tid);
    // The word had changed (EAGAIN): nobody waited.
    if ((s32)ctx[1] == -11)
        return 0;
    account(&wait, tgid, now - wait.since_ns);
    cost(END, now);
    return 0;
}

// ---- Descendants of the chosen processes ----

SEC("tp_btf/sched_process_fork")
int forked(u64 *ctx) {
    struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
    u32 above = parent->tgid, below = child->tgid, one = 1;
    if (above != below && map_lookup(&chosen, &above) && map_update(&chosen, &below, &one, ANY))
        tally(UNSEEN, 1);
    return 0;
}

SEC("tp_btf/sched_process_free")
int freed(u64 *ctx) {
    struct task_struct *task = (void *)ctx[0];
    u32 tgid = task->tgid;
    // A group's leader is freed last. Its number may soon be reused.
    if (task->pid == task->tgid)
        map_delete(&chosen, &tgid);
    return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
