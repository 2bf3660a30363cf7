// SPDX-License-Identifier: MIT
/*
 * A demonstration: the slow path of the kernel's mutexes asks a lock policy, in a kernel that runs and was not rebuilt.
 *
 * The patch replaces __mutex_lock_slowpath, to which mutex_lock turns when the mutex is taken. So a free mutex costs what it did.
 *
 *     line 1..n of waiters ─► head ─► the kernel's own slow path ─► the mutex
 *
 * Waiters for one mutex stand in a line of ours. Only the first, the head, waits in the kernel's own slow path. Before it does, it asks
 * the policy's cmp_node about those behind it, and puts the chosen ones in front: the holder of the mutex never waits for a policy. Once
 * it has the mutex, the next in line becomes the head. Who holds the mutex is decided by the mutex alone, so waiters from before the
 * patch, and all other ways to lock a mutex, keep working, and a policy can't break mutual exclusion.
 *
 * The policy is eBPF that the kernel's own verifier has accepted: a pinned program for each hook, named by the module's parameters.
 * cargo xtask kernel-policy builds this, and runs it in a virtual machine; docs/policies-kernel.md says what that shows.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/hash.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/sched/task.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>

#include "lockwright_policy.h"

/* A policy sees this many waiters at most, at a time. */
#define WINDOW 16
/* Nobody is passed more often than this. */
#define PASSED_MAX 64
/* Lines, of which each serves one mutex at a time. If another has it, waiters for this mutex use the kernel's slow path alone. */
#define LINES_BITS 6

static char *cmp_node;
module_param(cmp_node, charp, 0444);
MODULE_PARM_DESC(cmp_node, "where the policy's cmp_node is pinned");
static char *skip_shuffle;
module_param(skip_shuffle, charp, 0444);
MODULE_PARM_DESC(skip_shuffle, "where the policy's skip_shuffle is pinned, if it has one");
static unsigned int little = UINT_MAX;
module_param(little, uint, 0444);
MODULE_PARM_DESC(little, "CPUs from this number on count as core class 1");

static struct bpf_prog *cmp_prog, *skip_prog;

/* A thread that waits, on its own stack. */
struct waiter {
	struct list_head entry;
	struct task_struct *task;
	u64 since; /* ns */
	bool is_head;
	struct lw_node node;
};

struct line {
	spinlock_t lock;
	struct mutex *mutex; /* NULL: nobody waits here */
	unsigned int users;  /* the head, and those behind it */
	struct list_head waiters;
	struct lw_ctx ctx; /* too large for a stack */
};

static struct line lines[1 << LINES_BITS];

/* What happened; read as the module's parameter `stats`. */
static struct {
	atomic_long_t slow_paths; /* a mutex was taken */
	atomic_long_t no_line;	  /* of these: the line was another mutex's */
	atomic_long_t waits;	  /* of these: waited behind a head */
	atomic_long_t asked;	  /* cmp_node */
	atomic_long_t skipped;	  /* skip_shuffle said 1 */
	atomic_long_t chosen;	  /* waiters that cmp_node put in front of others */
	atomic_long_t chosen_big; /* of these: on a core of class 0 */
	atomic_long_t refused;	  /* answers out of range */
	atomic_long_t passed_max; /* how often one waiter was passed, at most */
	atomic_long_t dying;	  /* a dying thread had to ask again for its mutex */
} stats;

static u32 ask(struct bpf_prog *prog, const struct lw_ctx *ctx, u32 largest)
{
	u32 answer;

	rcu_read_lock();
	answer = bpf_prog_run(prog, ctx);
	rcu_read_unlock();
	if (answer <= largest)
		return answer;
	atomic_long_inc(&stats.refused);
	return 0;
}

static void describe(struct waiter *waiter)
{
	struct lw_node *node = &waiter->node;
	unsigned int cpu = raw_smp_processor_id();

	waiter->task = current;
	waiter->since = ktime_get_ns();
	node->tid = task_pid_nr(current);
	node->cpu = cpu;
	node->numa = cpu_to_node(cpu);
	node->core_class = cpu >= little;
	/* Without measurements, as big.LITTLE: half as fast. */
	node->speed = node->core_class ? 512 : 1024;
	node->prio = rt_task(current) ? (int)current->rt_priority : -task_nice(current);
	/* As for threads outside epochs. */
	node->window_ns = 100 * NSEC_PER_MSEC;
}

/* What a policy is told of `waiter`. */
static struct lw_node seen(const struct waiter *waiter, u64 now)
{
	struct lw_node node = waiter->node;

	node.wait_ns = now > waiter->since ? now - waiter->since : 0;
	if (!task_is_running(waiter->task))
		node.flags |= LW_ASLEEP;
	return node;
}

/* Asks the policy who shall be first behind the head: a bit for each of the first waiters. The line is locked. */
static u32 chosen(struct line *line, u64 now)
{
	struct lw_ctx *ctx = &line->ctx;
	struct waiter *best = list_first_entry(&line->waiters, struct waiter, entry), *curr;
	u32 group = 0, first = 1, bit = 1;

	list_for_each_entry(curr, &line->waiters, entry) {
		ctx->best = seen(best, now);
		ctx->curr = seen(curr, now);
		atomic_long_inc(&stats.asked);
		switch (ask(cmp_prog, ctx, LW_GROUP)) {
		case LW_NEXT:
			return group | bit;
		case LW_BETTER:
			best = curr;
			first = bit;
			break;
		case LW_GROUP:
			group |= bit;
			break;
		}
		ctx->round++;
		bit <<= 1;
		/* The bounds hold whatever a policy says. */
		if (ctx->round == WINDOW || curr->node.passed > PASSED_MAX - WINDOW)
			break;
	}
	return group ? group : first;
}

/* Lets the policy choose who is first behind the head `own`. The line is locked. */
static void shuffle(struct line *line, struct waiter *own)
{
	struct lw_ctx *ctx = &line->ctx;
	struct waiter *curr, *next;
	u64 now = ktime_get_ns();
	LIST_HEAD(front);
	bool is_passing = false; /* somebody who stays is in front of the rest */
	u32 rest;

	if (line->users < 3)
		return; /* nobody, or only one behind it */
	curr = list_first_entry(&line->waiters, struct waiter, entry);
	memset(ctx, 0, sizeof(*ctx));
	ctx->lock_id = (unsigned long)line->mutex;
	ctx->batch = curr->node.passed;
	ctx->nwaiters = line->users - 1;
	ctx->now_ns = now;
	ctx->own = seen(own, now);
	if (skip_prog && ask(skip_prog, ctx, 1)) {
		atomic_long_inc(&stats.skipped);
		return;
	}
	rest = chosen(line, now);
	list_for_each_entry_safe(curr, next, &line->waiters, entry) {
		if (!rest)
			break; /* those behind keep their places */
		if (rest & 1) {
			list_move_tail(&curr->entry, &front);
			if (is_passing) {
				atomic_long_inc(&stats.chosen);
				if (curr->node.core_class == 0)
					atomic_long_inc(&stats.chosen_big);
			}
		} else {
			is_passing = true;
			curr->node.passed += hweight32(rest);
			if (curr->node.passed > atomic_long_read(&stats.passed_max))
				atomic_long_set(&stats.passed_max, curr->node.passed);
		}
		rest >>= 1;
	}
	list_splice(&front, &line->waiters);
}

/* The kernel's own slow path, by a function that is not patched. It fails only for a thread that is being killed. */
static void take(struct mutex *mutex)
{
	while (mutex_lock_killable(mutex)) {
		atomic_long_inc(&stats.dying);
		schedule_timeout_uninterruptible(1);
	}
}

/* Joins the line, and returns it once `own` is its head; NULL: the line is another mutex's. */
static struct line *join(struct mutex *mutex, struct waiter *own)
{
	struct line *line = &lines[hash_ptr(mutex, LINES_BITS)];

	spin_lock(&line->lock);
	if (line->mutex && line->mutex != mutex) {
		spin_unlock(&line->lock);
		atomic_long_inc(&stats.no_line);
		return NULL;
	}
	line->mutex = mutex;
	if (line->users++ == 0) {
		own->is_head = true;
		spin_unlock(&line->lock);
		return line;
	}
	list_add_tail(&own->entry, &line->waiters);
	spin_unlock(&line->lock);
	atomic_long_inc(&stats.waits);
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		/* Pairs with the release in leave(). */
		if (smp_load_acquire(&own->is_head))
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	return line;
}

/* The head has the mutex: the next in line is the head. */
static void leave(struct line *line)
{
	struct task_struct *task = NULL;

	spin_lock(&line->lock);
	if (--line->users == 0) {
		line->mutex = NULL;
	} else {
		struct waiter *next = list_first_entry(&line->waiters, struct waiter, entry);

		list_del(&next->entry);
		task = get_task_struct(next->task);
		/* From here on `next` may be gone: it lies on its thread's stack. */
		smp_store_release(&next->is_head, true);
	}
	spin_unlock(&line->lock);
	if (task) {
		wake_up_process(task);
		put_task_struct(task);
	}
}

static noinline void lockwright_mutex_lock_slowpath(struct mutex *mutex)
{
	struct waiter own = {};
	struct line *line;

	atomic_long_inc(&stats.slow_paths);
	describe(&own);
	line = join(mutex, &own);
	if (!line) {
		take(mutex);
		return;
	}
	spin_lock(&line->lock);
	shuffle(line, &own);
	spin_unlock(&line->lock);
	take(mutex);
	leave(line);
}

static int show(char *buffer, const struct kernel_param *param)
{
#define COUNT(name) #name " %ld\n"
#define VALUE(name) atomic_long_read(&stats.name)
	return scnprintf(buffer, PAGE_SIZE,
			 COUNT(slow_paths) COUNT(no_line) COUNT(waits) COUNT(asked) COUNT(skipped) COUNT(chosen)
			 COUNT(chosen_big) COUNT(refused) COUNT(passed_max) COUNT(dying),
			 VALUE(slow_paths), VALUE(no_line), VALUE(waits), VALUE(asked), VALUE(skipped), VALUE(chosen),
			 VALUE(chosen_big), VALUE(refused), VALUE(passed_max), VALUE(dying));
}

static const struct kernel_param_ops show_ops = { .get = show };
module_param_cb(stats, &show_ops, NULL, 0444);
MODULE_PARM_DESC(stats, "what happened so far");

static struct klp_func funcs[] = {
	{ .old_name = "__mutex_lock_slowpath", .new_func = lockwright_mutex_lock_slowpath },
	{},
};
static struct klp_object objects[] = { { .funcs = funcs }, {} };
static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

static void put(void)
{
	if (skip_prog)
		bpf_prog_put(skip_prog);
	if (cmp_prog)
		bpf_prog_put(cmp_prog);
}

static int get(const char *path, struct bpf_prog **prog)
{
	struct bpf_prog *found = bpf_prog_get_type_path(path, BPF_PROG_TYPE_TRACEPOINT);

	if (IS_ERR(found)) {
		pr_err("cannot use the program that is pinned at '%s': %pe\n", path, found);
		return PTR_ERR(found);
	}
	*prog = found;
	return 0;
}

static int __init lockwright_init(void)
{
	int error;
	size_t i;

	if (!cmp_node) {
		pr_err("no policy\nhint: cmp_node=/sys/fs/bpf/cmp_node\n");
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(lines); i++) {
		spin_lock_init(&lines[i].lock);
		INIT_LIST_HEAD(&lines[i].waiters);
	}
	error = get(cmp_node, &cmp_prog);
	if (!error && skip_shuffle)
		error = get(skip_shuffle, &skip_prog);
	if (!error)
		error = klp_enable_patch(&patch);
	if (error)
		put();
	return error;
}

/* The kernel calls this only once the patch is off, and no thread is inside it. */
static void __exit lockwright_exit(void)
{
	put();
}

module_init(lockwright_init);
module_exit(lockwright_exit);
MODULE_DESCRIPTION("lock policies in the kernel: a demonstration");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_INFO(livepatch, "Y");
