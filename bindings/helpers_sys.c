// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/percpu.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/smp.h>

#include "helpers_sys.h"

void rtrs_helper_spin_lock_init(spinlock_t *lock, const char *name, struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_SPINLOCK
# ifdef CONFIG_PREEMPT_RT
	__spin_lock_init(lock, name, key, false);
# else
	__raw_spin_lock_init(spinlock_check(lock), name, key, LD_WAIT_CONFIG);
# endif
#else
	spin_lock_init(lock);
#endif
}

unsigned long rtrs_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool rtrs_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

void rtrs_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

void rtrs_helper_spin_assert_held(spinlock_t *lock)
{
	lockdep_assert_held(lock);
}

void rtrs_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void rtrs_helper_local_bh_enable(void)
{
	local_bh_enable();
}

void rtrs_helper_completion_init(struct completion *x)
{
	init_completion(x);
}

/*
 * Wakes nr exclusive waiters (0: all of them) and all others. wq_has_sleeper()
 * has the full barrier that orders the caller's stores before the look at the
 * queue; its other half is in prepare_to_wait_event().
 */
void rtrs_helper_wake_up(struct wait_queue_head *wq, int nr)
{
	if (wq_has_sleeper(wq))
		__wake_up(wq, TASK_NORMAL, nr, NULL);
}

/*
 * Waits for tasks that were preempted: without CONFIG_TASKS_RCU it is
 * synchronize_rcu(), which does not. Where no task is preempted in the kernel
 * that is enough. PREEMPT, PREEMPT_LAZY, PREEMPT_DYNAMIC and PREEMPT_RT all
 * select PREEMPTION.
 */
#if defined(CONFIG_PREEMPTION) && !defined(CONFIG_TASKS_RCU)
#error "To unload the modules, PREEMPTION needs TASKS_RCU (FORCE_TASKS_RCU)"
#endif

void rtrs_helper_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

bool rtrs_helper_cpu_possible(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_possible(cpu);
}

/*
 * Per-CPU pointers are passed as plain ones: for clang they are in another
 * address space, and a function is only inlined if its caller has the same
 * types for the arguments. GCC converts between its own spaces by way of an
 * integer.
 */
void *rtrs_helper_this_cpu_ptr(void *p)
{
	return raw_cpu_ptr((void __percpu __force *)(unsigned long)p);
}

void *rtrs_helper_per_cpu_ptr(void *p, unsigned int cpu)
{
	return per_cpu_ptr((void __percpu __force *)(unsigned long)p, cpu);
}

void rtrs_helper_this_cpu_add(u64 *p, u64 v)
{
	this_cpu_add(*(u64 __percpu __force *)(unsigned long)p, v);
}

/* A node that does not exist or is offline means no preference. */
static int node_or_none(int node)
{
	if (node < 0 || node >= MAX_NUMNODES || !node_online(node))
		return NUMA_NO_NODE;
	return node;
}

/*
 * Words of a bitmap are full, also those of a small one: so the word of a tag
 * is found by shifts that the compiler knows, without a look at the bitmap.
 */
#define TAG_SHIFT ilog2(BITS_PER_LONG)

/* Where the search of a CPU begins: each has a word, as far as there are enough. */
static unsigned int tag_home(const struct sbitmap *sb, unsigned int cpu)
{
	return cpu % sb->map_nr << TAG_SHIFT;
}

int rtrs_helper_sbitmap_init(struct sbitmap *sb, unsigned int depth, gfp_t gfp, int node)
{
	unsigned int cpu;
	int ret = sbitmap_init_node(sb, depth, TAG_SHIFT, gfp, node_or_none(node), false, true);

	if (ret)
		return ret;
	for_each_possible_cpu(cpu) {
		unsigned int *hint = per_cpu_ptr(sb->alloc_hint, cpu);

		*hint = tag_home(sb, cpu);
	}
	return 0;
}

/*
 * Makes this CPU begin in its own word again, which it leaves if that is full.
 * No harm if the task is moved.
 */
void rtrs_helper_tag_go_home(struct sbitmap *sb)
{
	raw_cpu_write(*sb->alloc_hint, tag_home(sb, raw_smp_processor_id()));
}

/*
 * A section that synchronize_rcu() waits for. Disabled preemption is such a
 * section, at the cost of an instruction. With PREEMPT_RT, where waking a task
 * takes a lock that sleeps, it must be explicit.
 */
static inline void tag_enter(void)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		rcu_read_lock();
	else
		preempt_disable();
}

static inline void tag_leave(void)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		rcu_read_unlock();
	else
		preempt_enable();
}

/*
 * sbitmap_put() for a bit of a bitmap that rtrs_helper_sbitmap_init() has made.
 *
 * The bit is cleared at once: sbitmap_put() leaves it set until its word is
 * used up, and so takes all numbers of a word in turn. Here a CPU takes the
 * lowest free number of its word, and what belongs to few numbers stays in the
 * caches, of the peer as well. Nor is the hint set: a CPU that completes what
 * another one has sent would go on in the word of that one.
 */
static inline void tag_clear(struct sbitmap *sb, unsigned int nr)
{
	/* The compiler takes it from here. */
	if (sb->shift != TAG_SHIFT)
		__builtin_unreachable();
	sbitmap_clear_bit(sb, nr);
}

/*
 * The first barrier orders accesses of the tag's owner before the bit may be
 * found free: the other half is the atomic operation in sbitmap_get(). The
 * second orders the bit before the look at the queue, like wq_has_sleeper(), at
 * no cost where an atomic operation is a barrier.
 *
 * Runs in a section, so that synchronize_rcu() after all tags were seen to be
 * back waits for every caller that is between bit and queue. If it returns
 * true, a task is waiting, and the section continues: rtrs_helper_tag_wake()
 * must be called.
 */
bool rtrs_helper_tag_put(struct sbitmap *sb, unsigned int nr, struct wait_queue_head *wq)
{
	tag_enter();
	/* Orders the use of the tag before the bit is found clear. */
	smp_mb__before_atomic();
	tag_clear(sb, nr);
	/* Orders the bit before the look at the queue: pairs with prepare_to_wait(). */
	smp_mb__after_atomic();
	/* The barrier above is the one that waitqueue_active() requires. */
	if (waitqueue_active(wq))
		return true;
	tag_leave();
	return false;
}

/* Ends the section of rtrs_helper_tag_put(). */
void rtrs_helper_tag_wake(struct wait_queue_head *wq)
{
	__wake_up(wq, TASK_NORMAL, 1, NULL);
	tag_leave();
}

void rtrs_helper_sbitmap_free(struct sbitmap *sb)
{
	sbitmap_free(sb);
}

unsigned int rtrs_helper_noio_save(void)
{
	return memalloc_noio_save();
}

void rtrs_helper_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

void *rtrs_helper_alloc_pages(int node, gfp_t gfp, unsigned int order)
{
	struct page *page = alloc_pages_node(node_or_none(node), gfp, order);

	return page ? page_address(page) : NULL;
}

void rtrs_helper_free_pages(void *addr, unsigned int order)
{
	__free_pages(virt_to_page(addr), order);
}

u64 rtrs_helper_total_ram(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

/*
 * Copies from or to memory that may be written to meanwhile. The compiler could
 * otherwise read the source again in place of the copy, and get different data:
 * it must not know the contents of the copy.
 */
void rtrs_helper_copy(void *dst, const void *src, size_t len)
{
	/* The fortified memcpy() hides the length, which callers know. */
	__builtin_memcpy(dst, src, len);
	barrier_data(dst);
}

struct kobject *rtrs_helper_module_kobj(struct module *mod)
{
	return &mod->mkobj.kobj;
}

/* Whether its init function has returned, and it is not being unloaded. */
bool rtrs_helper_module_is_live(const struct module *mod)
{
	return READ_ONCE(mod->state) == MODULE_STATE_LIVE;
}

/* Whether the address is in memory that the module has until it is unloaded. */
bool rtrs_helper_module_has(const struct module *mod, const void *addr)
{
	return within_module_core((unsigned long)addr, mod);
}

struct dentry *rtrs_helper_debugfs_create_dir(const char *name)
{
	return debugfs_create_dir(name, NULL);
}

void rtrs_helper_debugfs_create_file(const char *name, umode_t mode, struct dentry *dir,
				     void *data, const struct file_operations *fops)
{
	debugfs_create_file(name, mode, dir, data, fops);
}

void rtrs_helper_debugfs_remove(struct dentry *dir)
{
	debugfs_remove(dir);
}

void rtrs_helper_uevent_suppress(struct device *dev, bool suppress)
{
	dev_set_uevent_suppress(dev, suppress);
}

void rtrs_helper_ratelimit_init(struct ratelimit_state *rs, int burst)
{
	ratelimit_state_init(rs, DEFAULT_RATELIMIT_INTERVAL, burst);
}

bool rtrs_helper_work_pending(struct work_struct *work)
{
	return work_pending(work);
}
