// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over the kernel C APIs that an RDMA storage transport needs
//! and the `kernel` crate does not have.
//!
//! The generated bindings are a private module: code outside this crate cannot name a C function,
//! so it needs no `unsafe` for one. The wrappers do not depend on RTRS and can be used elsewhere.
//!
//! | module | wraps |
//! |---|---|
//! | [`ib`] | `ib_verbs.h`, `rdma_cm.h` |
//! | [`class`], [`kobject`], [`attribute`] | sysfs classes, devices, directories and files |
//! | [`debugfs`] | debugfs directories and files |
//! | [`percpu`], [`rcu`] | per-CPU counters, RCU-published owners |
//! | [`workqueue`], [`wait`], [`lock`] | owned queues and cancellable work, waiting, irq-safe locks |
//! | [`try_lock`], [`place`], [`berth`], [`solo`] | values, boxes and work with one owner at a time |
//! | [`pages`], [`sbitmap`], [`places`], [`noio`] | memory, tags, one object per tag, allocation scopes |
//! | [`param`], [`mod@ratelimit`], [`errno`], [`uuid`], [`time`], [`trace`] | small utilities |
//! | `kunit` | suites of KUnit, with `CONFIG_KUNIT` |
//! | [`compat`] | differences between kernels |

pub mod attribute;
pub mod berth;
pub mod callback;
pub mod class;
pub mod compat;
pub mod debugfs;
pub mod errno;
pub mod ib;
pub mod kobject;
#[cfg(CONFIG_KUNIT)]
pub mod kunit;
pub mod loan;
pub mod lock;
pub mod noio;
mod once;
pub mod pages;
pub mod param;
pub mod percpu;
pub mod place;
pub mod places;
pub mod ratelimit;
#[cfg_attr(not(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES), allow(unknown_lints))]
#[allow(unnecessary_transmutes)]
mod raw;
pub mod rcu;
pub mod sbitmap;
mod softirq;
pub mod solo;
pub mod time;
pub mod trace;
pub mod try_lock;
pub mod uuid;
pub mod wait;
pub mod workqueue;

/// Atomics, under the name that code also compiled into the host tests uses.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    };
}

/// The owning pointer, likewise.
mod boxed {
    pub(crate) use kernel::prelude::KBox;
}

/// Prefix of log lines that come from this crate, which is part of rtrs-core.
const __LOG_PREFIX: &[u8] = b"rtrs_core\0";
