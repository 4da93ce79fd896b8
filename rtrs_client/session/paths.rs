// SPDX-License-Identifier: GPL-2.0

//! The set of a session's paths.
//!
//! # Locking
//!
//! Submitters read the set inside RCU. Changes need [`Paths::lock`], a mutex below all others of a
//! session. It is held while the set is exchanged, not while a path connects or ends. It protects
//! the set that was replaced when the last path was added. Submitters may still read that, so adding
//! a path keeps it and does not wait for them; the next change does. Allocations with it held must
//! not wait for IO: a path that comes back needs the lock to let IO go on.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
};
use rtrs_bindings::{
    errno,
    ib::SockAddr,
    noio,
    percpu::PerCpu,
    rcu::{
        RcuCell,
        Retired, //
    },
};
use rtrs_core::proto::MAX_PATHS;

use super::Session;
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    path::{
        Path,
        PathName, //
    },
    sysfs::SessionFiles, //
};

/// The set of paths at one time.
pub(super) struct PathSet {
    pub(super) all: KVec<Arc<Path>>,
    /// The path, if it is the only one: then there is no choice.
    pub(super) only: Option<Arc<Path>>,
}

impl PathSet {
    fn new(all: KVec<Arc<Path>>) -> Self {
        let only = match &*all {
            [path] => Some(path.clone()),
            _ => None,
        };
        Self { all, only }
    }
}

/// A set that is not the present one any more. Submitters may still be reading it.
pub(super) type OldSet = Retired<Arc<PathSet>>;

/// The paths of a session.
#[pin_data]
pub(super) struct Paths {
    pub(super) set: RcuCell<Arc<PathSet>>,
    /// The path used last, by CPU, from which round-robin continues.
    pub(super) last: PerCpu<Atomic<u32>>,
    /// No path is added any more. Set with `lock` held.
    closing: Atomic<bool>,
    /// Writes that were answered on paths that are gone. Changed with `lock` held.
    pub(super) written_by_gone: Atomic<u64>,
    /// For changes, with the set that was replaced when the last path was added.
    #[pin]
    pub(super) lock: Mutex<Option<OldSet>>,
}

impl Paths {
    /// Without paths. May sleep.
    pub(super) fn new() -> Result<impl PinInit<Self>> {
        let set = Arc::new(PathSet::new(KVec::new()), GFP_KERNEL)?;
        let last = PerCpu::new(|_| Atomic::new(0))?;
        Ok(pin_init!(Self {
            set: RcuCell::new(set),
            last,
            closing: Atomic::new(false),
            written_by_gone: Atomic::new(0),
            lock <- new_mutex!(None, "rtrs_paths"),
        }))
    }
}

impl Session {
    /// Whether it is being closed, so that no path is added any more. Any context.
    pub(crate) fn is_closing(&self) -> bool {
        self.paths.closing.load(Relaxed)
    }

    /// Whether some path takes requests.
    pub(crate) fn is_connected(&self) -> bool {
        let guard = rcu::read_lock();
        self.paths
            .set
            .read(&guard)
            .is_some_and(|set| set.all.iter().any(|path| path.is_connected()))
    }

    /// Whether there are paths, connected or not.
    pub(crate) fn has_paths(&self) -> bool {
        let guard = rcu::read_lock();
        let set = self.paths.set.read(&guard);
        set.is_some_and(|set| !set.all.is_empty())
    }

    /// Returns the present paths. Does not sleep or allocate.
    pub(super) fn path_set(&self) -> Option<Arc<PathSet>> {
        self.paths.set.get()
    }

    /// Calls `f` with each path.
    pub(crate) fn for_each_path(&self, mut f: impl FnMut(&Arc<Path>)) {
        if let Some(set) = self.path_set() {
            set.all.iter().for_each(&mut f);
        }
    }

    /// Publishes the set of paths that `change` makes from the present one, which it returns.
    fn change_paths(&self, change: impl FnOnce(&mut KVec<Arc<Path>>) -> Result) -> Result<OldSet> {
        let old = self.path_set().ok_or(EINVAL)?;
        let mut new = KVec::with_capacity(old.all.len() + 1, GFP_KERNEL)?;
        for path in old.all.iter() {
            new.push(path.clone(), GFP_KERNEL)?;
        }
        change(&mut new)?;
        let new = Arc::new(PathSet::new(new), GFP_KERNEL)?;
        Ok(self.paths.set.replace(Some(new)))
    }

    /// Adds a path and waits until it is connected. May sleep; ends early when the task is being
    /// killed, or the session is being closed.
    ///
    /// # Errors
    ///
    /// `EEXIST` for an existing path, `EUSERS` for too many, `ESHUTDOWN` if the session is being
    /// closed, or the reason why it did not connect. The path is removed then.
    pub(crate) fn add_path(
        self: &Arc<Self>,
        src: Option<SockAddr>,
        dst: SockAddr,
    ) -> Result<Arc<Path>> {
        let path = self.start_path(src, dst)?;
        self.await_path(&path).map(|()| path)
    }

    /// Adds paths and waits until all are connected. They connect at the same time, once the first
    /// has told the server of the session. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`Session::add_path`], for the first that fails; `EINVAL` without paths.
    pub(crate) fn add_paths(
        self: &Arc<Self>,
        paths: impl Iterator<Item = (Option<SockAddr>, SockAddr)>,
    ) -> Result {
        let mut started = KVec::new();
        for (src, dst) in paths {
            let path = self.start_path(src, dst)?;
            if started.is_empty() {
                path.wait_known()?;
            }
            started.push(path, GFP_KERNEL)?;
        }
        if started.is_empty() {
            return Err(EINVAL);
        }
        started.iter().try_for_each(|path| self.await_path(path))
    }

    /// Adds a new path to the set, and starts to connect it. May sleep.
    fn start_path(self: &Arc<Self>, src: Option<SockAddr>, dst: SockAddr) -> Result<Arc<Path>> {
        let path = Path::new(self.clone(), src, dst)?;
        noio::scope(|| {
            let mut before = self.paths.lock.lock();
            if self.is_closing() {
                return Err(errno::ESHUTDOWN);
            }
            let old = self.change_paths(|paths| {
                if paths.len() >= MAX_PATHS {
                    return Err(errno::EUSERS);
                }
                if paths.iter().any(|p| p.same_addresses(&path)) {
                    return Err(EEXIST);
                }
                Ok(paths.push(path.clone(), GFP_KERNEL)?)
            })?;
            *before = Some(old);
            Ok(())
        })?;
        path.start();
        Ok(path)
    }

    /// Waits until a path that was started is connected, and shows it. May sleep.
    fn await_path(self: &Arc<Self>, path: &Arc<Path>) -> Result {
        let added = path
            .wait_connected()
            .and_then(|()| self.check_addresses(path))
            .and_then(|()| {
                self.with_files(|files| match files {
                    Some(files) => self.publish_path(path, files),
                    None => Ok(()),
                })
            });
        if added.is_err() {
            self.remove_path(path);
            if self.is_closing() {
                return Err(errno::ESHUTDOWN);
            }
        }
        added
    }

    /// Checks a path that is now connected: a source address that was left open is known now. Fails
    /// if an older path has the same addresses.
    fn check_addresses(&self, path: &Arc<Path>) -> Result {
        let set = self.path_set().ok_or(errno::ECONNABORTED)?;
        let mut older = set.all.iter().take_while(|p| !Arc::ptr_eq(p, path));
        if older.any(|p| p.same_addresses(path)) {
            Err(EEXIST)
        } else {
            Ok(())
        }
    }

    /// Shows a path, unless another one has its name: it had these addresses first, or was added at
    /// the same time with the source address that this one got. The session's files are locked, so
    /// no other path gets a name meanwhile.
    fn publish_path(&self, path: &Arc<Path>, files: &SessionFiles) -> Result {
        let set = self.path_set().ok_or(errno::ECONNABORTED)?;
        let name = CString::try_from_fmt(fmt!("{}", PathName(path)))?;
        let mut others = set.all.iter().filter(|p| !Arc::ptr_eq(p, path));
        if others.any(|p| p.cached_name() == &*name) {
            return Err(EEXIST);
        }
        path.publish_files(files)
    }

    /// Disconnects a path and removes it. Sleeps until that is done.
    pub(crate) fn remove_path(self: &Arc<Self>, path: &Arc<Path>) {
        path.remove();
        noio::scope(|| self.forget_path(path));
        if !self.has_paths() {
            self.fail_without_paths();
        }
    }

    /// Takes a path that has ended out of the set. May sleep.
    fn forget_path(self: &Arc<Self>, path: &Arc<Path>) {
        let mut before = self.paths.lock.lock();
        // Fails for lack of memory only. The path stays in the set then, in its last state, until
        // the session is closed.
        let mut found = false;
        let removed = self.change_paths(|paths| {
            if let Some(i) = paths.iter().position(|p| Arc::ptr_eq(p, path)) {
                found = paths.remove(i).is_ok();
            }
            Ok(())
        });
        // Waits until no submitter uses the old set.
        if removed.map(drop) == Err(ENOMEM) {
            pr_warn!("{}: no memory to forget a path\n", &**path);
        } else if found {
            self.note_written(path);
        }
        // It may have the path as well.
        drop(before.take());
    }

    /// Ends all paths, at the same time, for a session that is being closed. No path is added, and
    /// no request waits any more. Sleeps until no work item of a path is left. Submitters may still
    /// use the paths: returns the last references to them.
    pub(super) fn end_paths(&self) -> (OldSet, Option<OldSet>) {
        self.for_each_path(Path::begin_remove);
        self.for_each_path(Path::remove);
        let mut before = self.paths.lock.lock();
        (self.paths.set.replace(None), before.take())
    }

    /// No path is added any more. Tasks that wait for the outcome of an attempt to connect stop
    /// waiting: while one of them is in a file the file cannot be removed, and a path may give way
    /// for ever to a session that ends. May sleep.
    pub(crate) fn stop_adding(&self) {
        {
            let _guard = self.paths.lock.lock();
            self.paths.closing.store(true, Relaxed);
        }
        self.for_each_path(|path| path.wake_waiters());
    }
}
