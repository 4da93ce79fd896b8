/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C entry points for items that the core kernel headers offer only as inline
 * functions, macros or structure fields. They contain no logic, which is in
 * Rust.
 *
 * The Rust for Linux helpers (rust_helper_*) are not used: the kernel does not
 * export them when it inlines them.
 *
 * Differences in the API between kernel versions are handled here.
 */
#ifndef RTRS_HELPERS_SYS_H
#define RTRS_HELPERS_SYS_H

#include <linux/bottom_half.h>
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/ratelimit_types.h>
#include <linux/sbitmap.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#ifdef __BINDGEN__
const gfp_t RTRS_GFP_COMP = __GFP_COMP;
const gfp_t RTRS_GFP_MAY_FAIL = __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
const unsigned int RTRS_MAX_PAGE_ORDER = MAX_PAGE_ORDER;
const size_t RTRS_PERCPU_MAX_SIZE = PCPU_MIN_UNIT_SIZE;
#endif

/* Locks */
void rtrs_helper_spin_lock_init(spinlock_t *lock, const char *name, struct lock_class_key *key);
unsigned long rtrs_helper_spin_lock_irqsave(spinlock_t *lock);
bool rtrs_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void rtrs_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
void rtrs_helper_spin_assert_held(spinlock_t *lock);
void rtrs_helper_local_bh_disable(void);
void rtrs_helper_local_bh_enable(void);

/* Waiting */
void rtrs_helper_completion_init(struct completion *x);
void rtrs_helper_wake_up(struct wait_queue_head *wq, int nr);

/* RCU */
void rtrs_helper_synchronize_rcu_tasks(void);

/* CPUs and per-CPU memory */
bool rtrs_helper_cpu_possible(unsigned int cpu);
void *rtrs_helper_this_cpu_ptr(void *p);
void *rtrs_helper_per_cpu_ptr(void *p, unsigned int cpu);
void rtrs_helper_this_cpu_add(u64 *p, u64 v);

/* Tags */
int rtrs_helper_sbitmap_init(struct sbitmap *sb, unsigned int depth, gfp_t gfp, int node);
void rtrs_helper_tag_go_home(struct sbitmap *sb);
bool rtrs_helper_tag_put(struct sbitmap *sb, unsigned int nr, struct wait_queue_head *wq);
void rtrs_helper_tag_wake(struct wait_queue_head *wq);
void rtrs_helper_sbitmap_free(struct sbitmap *sb);

/* Memory */
unsigned int rtrs_helper_noio_save(void);
void rtrs_helper_noio_restore(unsigned int flags);
void *rtrs_helper_alloc_pages(int node, gfp_t gfp, unsigned int order);
void rtrs_helper_free_pages(void *addr, unsigned int order);
u64 rtrs_helper_total_ram(void);
void rtrs_helper_copy(void *dst, const void *src, size_t len);

/* Devices and modules */
struct kobject *rtrs_helper_module_kobj(struct module *mod);
bool rtrs_helper_module_is_live(const struct module *mod);
bool rtrs_helper_module_has(const struct module *mod, const void *addr);
void rtrs_helper_uevent_suppress(struct device *dev, bool suppress);

/* debugfs, which is optional */
struct dentry *rtrs_helper_debugfs_create_dir(const char *name);
void rtrs_helper_debugfs_create_file(const char *name, umode_t mode, struct dentry *dir,
				     void *data, const struct file_operations *fops);
void rtrs_helper_debugfs_remove(struct dentry *dir);

/* Work */
bool rtrs_helper_work_pending(struct work_struct *work);

/* Messages */
void rtrs_helper_ratelimit_init(struct ratelimit_state *rs, int burst);

#endif /* RTRS_HELPERS_SYS_H */
