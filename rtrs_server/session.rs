// SPDX-License-Identifier: GPL-2.0

//! One client, over all its paths.
//!
//! # Locking
//!
//! * `announced` (mutex): the state of the session that was reported to the user and sysfs. Taken
//!   by owner tasks of its paths and by its own timer, and held while the user's link callbacks
//!   run. No other task waits for it. The registry nests inside.
//! * `question` (spinlock, interrupts off): `paths` nests inside.
//! * `paths` (spinlock, any context, interrupts off): the list of paths. The locks of a path's
//!   queue pairs nest inside, since the end of an operation hands the chunk to another path.
//! * `sources` and `share` (spinlocks, interrupts off): leaves.
//! * Paths are added, and the session is removed from the registry, with the registry locked as
//!   well. The registry is locked first.

mod chunks;
mod linger;
mod observe;

use core::{
    ffi::c_void,
    num::NonZeroU32, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
};

use rtrs_bindings::{
    errno,
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    time::now_ns,
    uuid::Uuid,
    workqueue::{
        new_delayed_work,
        DelayedWork, //
    },
};
use rtrs_core::{
    addr::Addr,
    proto::{
        Geometry,
        SessionName,
        MAX_PATHS, //
    },
};

use crate::{
    context::Context,
    limits::Charge,
    logic::{
        admission::{
            Question,
            Sources, //
        },
        chunk_state::{
            ChunkState,
            Incarnation, //
        },
        path_state::CloseReason,
        source::Source, //
    },
    path::Path,
    sysfs::SessionDir, //
};

/// Room in the list of paths: the most a session may have, and as many that are on their way out.
const PATHS_ROOM: usize = 2 * MAX_PATHS;

/// The number of addresses that a session remembers.
const KEPT_SOURCES: usize = 8;

/// The reported state of a session.
struct Announced {
    /// Paths that are up, or about to be.
    shown: u32,
    /// Since when there is one, in nanoseconds of the monotonic clock.
    shown_since: u64,
    dir: Option<SessionDir>,
    /// The user was told that the session is up.
    up: bool,
    /// Paths that were reported to user space.
    connected: u32,
    /// Number of the last event.
    number: u64,
}

/// A client's session.
///
/// It exists from the first connection request that names it until its last path is gone and
/// nothing executes for it any more. If its user knows it, it exists for a while longer, so that a
/// client that lost its paths finds its state.
#[pin_data]
pub struct Session {
    pub(crate) ctx: Arc<Context>,
    uuid: Uuid,
    /// One for each chunk, for all paths; made when the first path comes up.
    chunk_states: SetOnce<KVVec<Arc<ChunkState>>>,
    /// The source of its first connection.
    pub(crate) source: Source,
    /// The name that came with the first info request.
    name: SetOnce<SessionName>,
    /// Paths that use the name, as seen by other sessions that want it.
    claims: Atomic<u32>,
    /// It gets its name as soon as the old holder is gone; see [`Session::reserve`].
    reserved: Atomic<bool>,
    incarnations: Atomic<u32>,
    /// Paths that were closed because of invalid messages of the client.
    violations: Atomic<u64>,
    /// The private pointer of the C API.
    private: Atomic<*mut c_void>,
    #[pin]
    paths: SpinLockIrq<KVec<Arc<Path>>>,
    #[pin]
    announced: Mutex<Announced>,
    /// The user was told that the session is up; see [`Session::is_kept`].
    kept: Atomic<bool>,
    /// The user is being told that the session is down; see [`Session::is_ending`].
    ending: Atomic<bool>,
    /// Its client was told of chunks once; see [`Session::note_served`]. Cleared like `left` at the
    /// end, with `announced` locked: a path that sets one of them has come up after that.
    served: Atomic<bool>,
    /// The last path that was up was ended by the client.
    left: Atomic<bool>,
    /// It is not kept for its client any more; see [`Session::give_up`].
    given_up: Atomic<bool>,
    /// When a path of it ended last, in nanoseconds of the monotonic clock.
    last_end: Atomic<u64>,
    /// See [`Session::down_since`]. Changed with `announced` locked.
    down_since: Atomic<u64>,
    /// See [`Session::was_up_for`]. Changed with `announced` locked.
    up_ns: Atomic<u64>,
    /// Another session wants its name.
    #[pin]
    question: SpinLockIrq<Question>,
    /// Addresses from which paths that were up came.
    #[pin]
    sources: SpinLockIrq<Sources<Addr, KEPT_SOURCES>>,
    /// Its share of the server's sessions, while it counts as one. Changed with the registry
    /// locked.
    #[pin]
    share: SpinLockIrq<Option<Charge>>,
    /// How long requests wait at the client; see [`PathWait`](rtrs_core::proto::PathWait).
    path_wait: Atomic<u32>,
    /// The end of the time a session without paths is kept.
    #[pin]
    expiry: DelayedWork<Self>,
}

impl Session {
    /// A session without paths. Its first connection comes from `source`. May sleep.
    pub(crate) fn new(ctx: &Arc<Context>, uuid: Uuid, source: Source) -> Result<Arc<Self>> {
        let paths = KVec::with_capacity(PATHS_ROOM, GFP_KERNEL)?;

        Arc::pin_init(
            pin_init!(Self {
                ctx: ctx.clone(),
                uuid,
                chunk_states: SetOnce::new(),
                source,
                name: SetOnce::new(),
                claims: Atomic::new(0),
                reserved: Atomic::new(false),
                incarnations: Atomic::new(0),
                violations: Atomic::new(0),
                private: Atomic::new(core::ptr::null_mut()),
                paths <- new_spinlock_irq!(paths, "rtrs_srv_paths"),
                announced <- new_mutex!(
                    Announced {
                        shown: 0,
                        shown_since: 0,
                        dir: None,
                        up: false,
                        connected: 0,
                        number: 0,
                    },
                    "rtrs_srv_announced"
                ),
                kept: Atomic::new(false),
                ending: Atomic::new(false),
                served: Atomic::new(false),
                left: Atomic::new(false),
                given_up: Atomic::new(false),
                last_end: Atomic::new(0),
                down_since: Atomic::new(0),
                up_ns: Atomic::new(0),
                question <- new_spinlock_irq!(Question::new(), "rtrs_srv_question"),
                sources <- new_spinlock_irq!(Sources::new(), "rtrs_srv_sources"),
                share <- new_spinlock_irq!(None, "rtrs_srv_share"),
                path_wait: Atomic::new(0),
                expiry <- new_delayed_work!("rtrs_srv_expiry"),
            }),
            GFP_KERNEL,
        )
    }

    /// The name that the client gave it; empty before that. Any context.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", SessionName::as_str)
    }

    /// [`Session::name`], for C. Any context.
    pub(crate) fn cname(&self) -> &CStr {
        self.name.as_ref().map_or(c"", SessionName::as_cstr)
    }

    /// Its identity. Any context.
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Returns the number of requests it can have at a time. Any context.
    pub fn queue_depth(&self) -> u16 {
        self.ctx.geometry().queue_depth()
    }

    /// Returns the maximum of data bytes of one request, as clients are told it. A request with a
    /// short user message may have a few more, as far as there is room in the chunk: mainline's
    /// client only looks at that. Any context.
    pub fn max_io_size(&self) -> u32 {
        self.ctx.geometry().max_io_size()
    }

    /// It counts as one of the server's sessions, or does not any more. The registry is locked.
    pub(crate) fn set_share(&self, share: Option<Charge>) {
        let old = core::mem::replace(&mut *self.share.lock(), share);
        drop(old);
    }

    /// Whether it counts as one of the server's sessions. The registry is locked.
    pub(crate) fn is_counted(&self) -> bool {
        self.share.lock().is_some()
    }

    /// Whether its client is one of that server.
    pub(crate) fn is_of(&self, ctx: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.ctx, ctx)
    }

    /// Returns the addresses of its paths that have sent their info request, without those that
    /// close. A connection request alone proves nothing, as its address can be forged. Any context.
    pub(crate) fn comes_from(&self) -> Sources<Addr, KEPT_SOURCES> {
        let mut sources = Sources::new();

        self.each(|path| {
            let counts = !path.is_closing() && path.has_asked();
            if let Some(addr) = path.addrs.src.filter(|_| counts) {
                sources.note(addr);
            }
        });
        sources
    }

    /// Whether it has a path from one of `sources`, without those that close. Any context.
    pub(crate) fn has_path_from(&self, sources: &Sources<Addr, KEPT_SOURCES>) -> bool {
        let from = |addr| sources.contains(addr);

        self.count(|path| !path.is_closing() && path.addrs.src.is_some_and(from)) != 0
    }

    /// Whether a path from one of `sources` was up recently. Any context.
    pub(crate) fn was_from_any(&self, sources: &Sources<Addr, KEPT_SOURCES>) -> bool {
        self.sources.lock().meet(sources)
    }

    /// Returns queue depth, chunk and header sizes, as its server has them. Any context.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.ctx.geometry()
    }

    /// Returns the value of the C user, null before it has set one. Any context.
    pub(crate) fn private(&self) -> *mut c_void {
        self.private.load(Acquire)
    }

    /// Sets the value of the C user. It is not looked at here. Any context.
    pub(crate) fn set_private(&self, private: *mut c_void) {
        self.private.store(private, Release);
    }

    /// Returns a number for a new life of a path.
    pub(crate) fn next_incarnation(&self) -> Incarnation {
        loop {
            let inc = self.incarnations.fetch_add(1, Relaxed).wrapping_add(1);
            if let Some(inc) = NonZeroU32::new(inc) {
                return inc;
            }
        }
    }

    //
    // Paths
    //

    /// Adds a path. The registry is locked.
    pub(crate) fn add(&self, path: &Arc<Path>) -> Result {
        self.paths
            .lock()
            .push_within_capacity(path.clone())
            .map_err(|_| ENOSPC)
    }

    /// Returns since when it has no path, in nanoseconds of the monotonic clock, if it has none.
    /// Any context.
    pub(crate) fn deserted_since(&self) -> u64 {
        self.last_end.load(Relaxed)
    }

    /// Returns since when it has no path that is up, in nanoseconds of the monotonic clock, if it
    /// had one and has none; 0 if it never had one. Attempts to connect that came to nothing make
    /// no difference. Any context.
    pub(crate) fn down_since(&self) -> u64 {
        self.down_since.load(Relaxed)
    }

    /// Returns for how long it had a path that was up, in nanoseconds, over its whole life, if it
    /// has none now. Any context.
    pub(crate) fn was_up_for(&self) -> u64 {
        self.up_ns.load(Relaxed)
    }

    /// Whether it has a path that is not closing. Any context.
    pub(crate) fn is_live(&self) -> bool {
        self.count(|path| !path.is_closing()) != 0
    }

    /// Whether it has no path at all.
    pub(crate) fn is_deserted(&self) -> bool {
        self.paths.lock().is_empty()
    }

    /// Returns the latest path for which `test` is true.
    pub(crate) fn find(&self, test: impl Fn(&Path) -> bool) -> Option<Arc<Path>> {
        let paths = self.paths.lock();

        paths.iter().rev().find(|path| test(path)).cloned()
    }

    /// Calls `look` for all paths.
    pub(crate) fn each(&self, look: impl FnMut(&Arc<Path>)) {
        self.paths.lock().iter().for_each(look);
    }

    /// Returns the number of paths for which `test` is true.
    pub(crate) fn count(&self, test: impl Fn(&Path) -> bool) -> usize {
        self.paths.lock().iter().filter(|path| test(path)).count()
    }

    /// Closes all paths.
    pub(crate) fn close_all(&self, reason: CloseReason) {
        for path in self.paths.lock().iter() {
            path.close(reason);
        }
    }

    //
    // Name, and what was announced
    //

    /// Whether its name is taken, as seen by other sessions that want it.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims.load(Acquire) != 0
    }

    /// A path names the session. The registry is locked, and no other session claims the name.
    /// Returns `false` if the session has another name already.
    pub(crate) fn claim(&self, name: &SessionName) -> bool {
        if !self.takes_name(name) {
            return false;
        }
        self.claims.fetch_add(1, Full);
        self.reserved.store(false, Relaxed);
        true
    }

    /// The holder of the name ends because of this session, which gets the name, and no other,
    /// unless all its paths close that ask for it. The registry is locked.
    pub(crate) fn reserve(&self, name: &SessionName) {
        if !self.is_claimed() {
            let taken = self.takes_name(name);
            self.reserved.store(taken, Relaxed);
        }
    }

    /// Another session has the name reserved by now. The registry is locked.
    pub(crate) fn unreserve(&self) {
        self.reserved.store(false, Relaxed);
    }

    /// Whether it waits for the end of the holder of its name. The registry is locked.
    pub(crate) fn is_reserved(&self) -> bool {
        let asks = |path: &Path| !path.is_closing() && path.has_asked();

        self.reserved.load(Relaxed) && self.count(asks) != 0
    }

    /// Gives it this name, unless it has another one. Returns whether it has this one.
    fn takes_name(&self, name: &SessionName) -> bool {
        self.name.populate(*name);
        self.name.as_ref() == Some(name)
    }

    /// The path that claimed the name is gone from sysfs.
    pub(crate) fn unclaim(&self) {
        self.claims.fetch_sub(1, Full);
    }

    /// A path comes up. Makes the session visible if the path is the first one, and tells the user.
    /// Then runs `f` with the session's directory. May sleep for as long as the user likes.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if the path has closed meanwhile: the user is not told of it.
    pub(crate) fn path_up<R>(
        self: &Arc<Self>,
        path: &Path,
        f: impl FnOnce(&SessionDir) -> Result<R>,
    ) -> Result<R> {
        let mut announced = self.announced.lock();

        if path.is_closing() {
            return Err(errno::ECONNABORTED);
        }
        if announced.dir.is_none() {
            announced.dir = Some(SessionDir::new(self)?);
        }
        // The user has the session from here on, even if the path does not come up.
        let result = self.tell_up(&mut announced).and_then(|()| {
            self.set_path_wait(path.path_wait);
            if let Some(addr) = path.addrs.src {
                self.sources.lock().note(addr);
            }
            match &announced.dir {
                Some(dir) => f(dir),
                None => Err(EIO),
            }
        });
        match result {
            Ok(_) => {
                if announced.shown == 0 {
                    announced.shown_since = now_ns();
                }
                announced.shown = announced.shown.saturating_add(1);
                self.given_up.store(false, Release);
                // Announced with a path in it, so that user space has something to look at.
                if let Some(dir) = &announced.dir {
                    dir.announce();
                }
            }
            Err(_) if announced.shown == 0 => announced.dir = None,
            Err(_) => (),
        }
        result
    }

    fn tell_up(&self, announced: &mut Announced) -> Result {
        if !announced.up {
            self.ctx.user.link_up(self)?;
            announced.up = true;
            self.kept.store(true, Release);
            // One that is added from now on finds the session kept.
            self.each(|path| path.leave_place());
        }
        Ok(())
    }

    /// A path for which [`Session::path_up`] succeeded is not usable any more, and its directory is
    /// gone. `told` if user space was told of the path. May sleep.
    pub(crate) fn path_down(&self, path: &Path, told: bool) {
        let mut announced = self.announced.lock();

        announced.shown = announced.shown.saturating_sub(1);
        if told {
            announced.connected = announced.connected.saturating_sub(1);
            let last = announced.connected == 0;
            self.send_event(&mut announced, path, false, last);
        }
        if announced.shown == 0 {
            announced.dir = None;
            let now = now_ns();
            self.up_ns
                .fetch_add(now.saturating_sub(announced.shown_since), Relaxed);
            self.down_since.store(now, Relaxed);
        }
    }

    /// The end of a path: its operations are over, and nothing refers to it. The session ends with
    /// its last path. May sleep for as long as the user likes.
    pub(crate) fn remove(self: &Arc<Self>, path: &Arc<Path>) {
        let removed = {
            let mut paths = self.paths.lock();
            // Before the list is empty: from then on the session may have to give way.
            self.last_end.store(now_ns(), Relaxed);
            let index = paths.iter().position(|p| Arc::ptr_eq(p, path));
            index.and_then(|index| paths.remove(index).ok())
        };
        drop(removed);
        if self.is_deserted() {
            self.linger();
        }
    }
}
