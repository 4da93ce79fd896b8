// SPDX-License-Identifier: GPL-2.0

//! Waiting for events, for conditions and for the last user of an object.
//!
//! C headers: [`include/linux/completion.h`](srctree/include/linux/completion.h),
//! [`include/linux/wait.h`](srctree/include/linux/wait.h)

use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    prelude::*,
    sync::{
        LockClassKey,
        Refcount, //
    },
    task::might_sleep,
    time::Jiffies,
    types::Opaque, //
};

use crate::{
    errno::ETIMEDOUT,
    raw,
    rcu, //
};

/// The longest finite time-out the scheduler takes.
const MAX_TIMEOUT: Jiffies = ffi::c_long::MAX as Jiffies - 1;

/// An event that happens once, or again and again: each [`complete`](Self::complete) ends one wait.
///
/// The completion of the kernel crate has only half of these methods.
#[pin_data]
pub struct Completion {
    #[pin]
    inner: Opaque<raw::completion>,
}

// SAFETY: A `struct completion` can be used from every thread.
unsafe impl Send for Completion {}
// SAFETY: The structure is synchronised by a lock of its own.
unsafe impl Sync for Completion {}

impl Completion {
    /// A completion that is not done.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writes, and pinned.
                unsafe { raw::rtrs_helper_completion_init(slot) }
            }),
        })
    }

    /// Wakes one waiter; without one, the next task that waits does not sleep. Any context.
    pub fn complete(&self) {
        // SAFETY: `inner` was initialised in `new`.
        unsafe { raw::complete(self.inner.get()) }
    }

    /// Wakes all waiters; later ones do not sleep. Any context.
    pub fn complete_all(&self) {
        // SAFETY: `inner` was initialised in `new`.
        unsafe { raw::complete_all(self.inner.get()) }
    }

    /// Sleeps until it is done; cannot be interrupted.
    pub fn wait(&self) {
        // SAFETY: `inner` was initialised in `new`.
        unsafe { raw::wait_for_completion(self.inner.get()) }
    }

    /// Sleeps until it is done, or returns [`ETIMEDOUT`].
    pub fn wait_timeout(&self, timeout: Jiffies) -> Result {
        // SAFETY: `inner` was initialised in `new`.
        let left =
            unsafe { raw::wait_for_completion_timeout(self.inner.get(), timeout.min(MAX_TIMEOUT)) };
        if left == 0 {
            return Err(ETIMEDOUT);
        }
        Ok(())
    }
}

/// Creates a [`WaitQueue`] initialiser with the given name, or one made of
/// file and line, and a lock class of its own.
#[macro_export]
macro_rules! new_wait_queue {
    ($($name:literal)?) => {
        $crate::wait::WaitQueue::new(
            ::kernel::optional_name!($($name)?),
            ::kernel::sync::static_lock_class!(),
        )
    };
}
pub use new_wait_queue;

/// Tasks that sleep until a condition, which lives elsewhere, becomes true.
///
/// Code that makes a condition true wakes the queue afterwards. Both halves of the barrier that
/// this needs are part of the implementation: the store that makes the condition true is ordered
/// before the waker looks for sleepers, and the sleeper is in the queue before it looks at the
/// condition. Any store will do, also a relaxed one.
///
/// Conditions are closures that are called several times, the first time
/// before sleeping. They run when the task is about to sleep, so they must not
/// sleep themselves.
#[pin_data]
pub struct WaitQueue {
    #[pin]
    inner: Opaque<raw::wait_queue_head>,
}

// SAFETY: A wait queue can be used from every thread.
unsafe impl Send for WaitQueue {}
// SAFETY: The structure is synchronised by a lock of its own.
unsafe impl Sync for WaitQueue {}

/// The way in which a waiter sleeps.
#[derive(Clone, Copy)]
struct Mode {
    state: u32,
    exclusive: bool,
    timeout: Option<Jiffies>,
}

const UNINTERRUPTIBLE: Mode = Mode {
    state: raw::TASK_UNINTERRUPTIBLE,
    exclusive: false,
    timeout: None,
};

const KILLABLE: Mode = Mode {
    state: raw::TASK_KILLABLE,
    ..UNINTERRUPTIBLE
};

impl WaitQueue {
    /// An empty queue; see [`new_wait_queue!`].
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writes and pinned; name and key
                // are static.
                unsafe { raw::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr()) }
            }),
        })
    }

    /// Wakes all waiters. Any context.
    pub fn wake_all(&self) {
        // SAFETY: `inner` was initialised in `new`.
        unsafe { raw::rtrs_helper_wake_up(self.inner.get(), 0) }
    }

    /// Wakes one exclusive waiter, the one that waits longest, and all
    /// waiters that are not exclusive. Any context.
    fn wake_one(&self) {
        // SAFETY: `inner` was initialised in `new`.
        unsafe { raw::rtrs_helper_wake_up(self.inner.get(), 1) }
    }

    /// Returns the C queue, for functions of the kernel that wait on it. It is initialised, and
    /// valid as long as `self`.
    pub(crate) fn as_raw(&self) -> *mut raw::wait_queue_head {
        self.inner.get()
    }

    /// Sleeps until `condition` is true; cannot be interrupted.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        let _ = self.wait(UNINTERRUPTIBLE, || condition().then_some(()));
    }

    /// Sleeps until `condition` is true, or returns [`ETIMEDOUT`]. For modules that are tests, like
    /// [`wait_until_killable_timeout`](Self::wait_until_killable_timeout): a test has to end.
    pub fn wait_until_timeout(
        &self,
        timeout: Jiffies,
        mut condition: impl FnMut() -> bool,
    ) -> Result {
        let mode = Mode {
            timeout: Some(timeout),
            ..UNINTERRUPTIBLE
        };
        self.wait(mode, || condition().then_some(()))
    }

    /// Sleeps until `condition` is true, or returns [`ERESTARTSYS`] when the task is being killed.
    pub fn wait_until_killable(&self, mut condition: impl FnMut() -> bool) -> Result {
        self.wait(KILLABLE, || condition().then_some(()))
    }

    /// Sleeps until `condition` is true, or returns [`ERESTARTSYS`] when the task is being killed,
    /// or [`ETIMEDOUT`]. For modules that are tests.
    pub fn wait_until_killable_timeout(
        &self,
        timeout: Jiffies,
        mut condition: impl FnMut() -> bool,
    ) -> Result {
        let mode = Mode {
            timeout: Some(timeout),
            ..KILLABLE
        };
        self.wait(mode, || condition().then_some(()))
    }

    /// Sleeps until `take` returns a value, as an exclusive waiter: for things that only one task
    /// can have. Each wake-up of one exclusive waiter announces one such thing.
    ///
    /// No wake-up is lost: a waiter that leaves wakes the next one, as it may have been woken for
    /// one thing and have found another. This needs a `take` that fails only if nothing is there,
    /// or if something was announced while it looked: it must try again when a compare-and-exchange
    /// fails.
    pub(crate) fn wait_for<R>(&self, take: impl FnMut() -> Option<R>) -> R {
        let mode = Mode {
            exclusive: true,
            ..UNINTERRUPTIBLE
        };
        match self.wait(mode, take) {
            Ok(taken) => taken,
            // PANIC: Neither a time-out nor a signal ends this wait.
            Err(_) => unreachable!(),
        }
    }

    fn wait<R>(&self, mode: Mode, mut condition: impl FnMut() -> Option<R>) -> Result<R> {
        might_sleep();
        if let Some(met) = condition() {
            return Ok(met);
        }

        let mut entry = MaybeUninit::uninit();
        let entry = entry.as_mut_ptr();
        let flags = if mode.exclusive {
            raw::WQ_FLAG_EXCLUSIVE
        } else {
            0
        };
        // SAFETY: `entry` is valid for writes. The local variable behind it
        // does not move, and leaves the queue before it goes out of scope.
        unsafe { raw::init_wait_entry(entry, flags as ffi::c_int) };

        let mut left = mode.timeout.map(|timeout| timeout.min(MAX_TIMEOUT));
        let result = loop {
            // SAFETY: The queue and `entry` are initialised, and `entry` is in no queue or in this
            // one.
            let signal = unsafe {
                raw::prepare_to_wait_event(self.inner.get(), entry, mode.state as ffi::c_int)
            };
            if let Some(met) = condition() {
                break Ok(met);
            }
            if signal != 0 {
                break Err(ERESTARTSYS);
            }
            match left {
                // SAFETY: The only requirement is that the caller may sleep.
                None => unsafe { raw::schedule() },
                Some(0) => break Err(ETIMEDOUT),
                Some(ticks) => {
                    // SAFETY: As above. CAST: At most `MAX_TIMEOUT`.
                    let rest = unsafe { raw::schedule_timeout(ticks as ffi::c_long) };
                    // CAST: `schedule_timeout()` never returns less than 0.
                    left = Some(rest as Jiffies);
                }
            }
        };
        // SAFETY: Both are initialised; after this `entry` is in no queue.
        unsafe { raw::finish_wait(self.inner.get(), entry) };
        if mode.exclusive {
            self.wake_one();
        }
        result
    }
}

/// Counts the users of an object, so that its owner can wait until none is left.
///
/// The owner of the object owns the `Users`; each user of the object has a [`User`]. Dropping the
/// `Users` sleeps until the last `User` is gone, so a user must not do it.
///
/// Code that follows the drop of the last `User`, for example the end of the function that dropped
/// it, may still be running when the owner continues; see [`Tails`].
///
/// # Forgetting
///
/// A `User` that is forgotten makes the owner wait for good: its module is not unloaded. A `Users`
/// that is forgotten is leaked, and so are the objects of its owner: users go on with an object that
/// stays. But then the exit of the module waits for none of them, and code of the module may be
/// called when it is gone. So a module must not forget an owner: memory safety depends on this rule,
/// and types cannot enforce it, as a value cannot notice that it is forgotten, and the kernel drops
/// only the structure of the module. It is the same with the registrations of the kernel crate. Code
/// that keeps its owners in that structure, or in what it owns, keeps to the rule.
///
/// # Other modules
///
/// A user counts for the module of its owner. So a module must not lend an owner, nor a handle of it
/// (a class, the parent of a directory, a queue, a directory of debugfs), to code of another one: that
/// module's functions would be called, and it would not wait for them. The modules here export none.
pub struct Users {
    count: Pin<KBox<Count>>,
}

#[pin_data]
struct Count {
    users: Refcount,
    #[pin]
    none: Completion,
}

/// One user, see [`Users`]. Clone and drop in any context.
///
/// # Invariants
///
/// `count` is valid, and one of its `users` is this one.
pub struct User {
    count: NonNull<Count>,
}

// SAFETY: A `Count` can be used by every thread.
unsafe impl Send for User {}
// SAFETY: It is synchronised by atomics and a lock of its own.
unsafe impl Sync for User {}

impl Users {
    /// Starts without users. May sleep.
    pub fn new() -> Result<Self> {
        let count = pin_init!(Count {
            // The owner counts.
            users: Refcount::new(1),
            none <- Completion::new(),
        });
        Ok(Self {
            count: KBox::pin_init(count, GFP_KERNEL)?,
        })
    }

    /// Adds a user. Any context.
    pub fn add(&self) -> User {
        self.count.users.inc();
        // INVARIANT: The user was just counted; the owner frees `count` when all users are gone.
        User {
            count: NonNull::from(&*self.count),
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        if !self.count.users.dec_and_test() {
            self.count.none.wait();
        }
    }
}

impl Clone for User {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant `count` is valid; `self` is counted until it is dropped.
        unsafe { self.count.as_ref() }.users.inc();
        // INVARIANT: The user was just counted.
        Self { count: self.count }
    }
}

impl Drop for User {
    /// Does not sleep, not even on PREEMPT_RT, where locks do: [`Tails`] relies on it. Therefore
    /// the owner frees the `Count`. The lock of a completion is a raw one.
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let count = unsafe { self.count.as_ref() };
        if count.users.dec_and_test() {
            // The owner is the only waiter. It frees `count` after this call has released its lock.
            count.none.complete();
        }
    }
}

/// Must be dropped after a [`Users`], before the code that its users run is freed: waits for what
/// the users still execute after the drop of their [`User`].
///
/// That code must not sleep, nor take a lock that sleeps on PREEMPT_RT, as those of the slab
/// allocator do: a task that sleeps is not waited for. So a function that frees an object with a
/// `User` takes the `User` out first and drops it last.
pub(crate) struct Tails;

impl Drop for Tails {
    fn drop(&mut self) {
        rcu::synchronize_tasks();
    }
}
