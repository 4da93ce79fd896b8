// SPDX-License-Identifier: GPL-2.0

//! One request of a client, from its arrival to its answer.
//!
//! Each chunk of a path has exactly one [`Op`], made with the chunk. Whoever has the box executes
//! the request: the chunk's slot while nothing runs, a completion handler, an inbox, the user in the
//! form of an [`Operation`]. So there is never a second one for the same chunk, and nothing to lock.
//!
//! # Lifetime
//!
//! An `Op` keeps its chunk's pages, not the queue pair, memory region or device: those go when the
//! path closes, while a slow disk may still work on the pages. What is left of a path then is
//! freed by the last `Op`, by way of the [`Lease`] that all of them share.
//!
//! # Context
//!
//! Any, unless it is said: disks complete in interrupts. That is also why dropping the last `Op`
//! only queues work.

use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    noio,
    pages::Pages,
    workqueue::{
        impl_has_work,
        new_work,
        Queue,
        Work,
        WorkExt,
        WorkItem, //
    },
};
use rtrs_core::proto::{
    Dir,
    Request, //
};

use crate::{
    limits::Share,
    path::Path, //
};

/// Bytes of user message that an [`Op`] has room for without allocating.
///
/// The longest message of RNBD fits. What follows a shorter one is zero, since RNBD looks for the
/// end of a string in its messages without looking at their length. A longer one is followed by
/// one zero.
const USR_ROOM: usize = 320;

/// Where a request is, as its immediate value and completion say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Connection it came over, and is answered on.
    pub(crate) cid: u16,
    /// Offset of the message in the chunk.
    pub(crate) off: u32,
    /// Bytes the client wrote.
    pub(crate) byte_len: u32,
}

/// One chunk's request.
///
/// C code that was compiled against mainline's header reads `dir` (`trace_process_rdma()` of
/// RNBD), so the first three fields have the place that they have there.
#[repr(C)]
pub(crate) struct Op {
    /// The reference is the chunk's: it is taken once more for each answer, and that of the path
    /// would go from processor to processor.
    path: Arc<Arc<Path>>,
    buf_id: u32,
    dir: u8,
    /// The session's word for this chunk says that we run; to be given back.
    busy: bool,
    arrival: Arrival,
    /// When it arrived, in nanoseconds of the monotonic clock.
    since: u64,
    request: Option<Request>,
    /// The user works on `private`.
    is_private: bool,
    /// Of the chunk.
    pages: Arc<Pages>,
    /// Pages that the client never had a key to, for few data.
    private: Option<Arc<Pages>>,
    usr: [u8; USR_ROOM],
    /// User message that does not leave a zero in `usr`, and a zero.
    long_usr: KVec<u8>,
    /// Dropped last: afterwards nobody needs the path for us.
    lease: Arc<Lease>,
}

const _: () = assert!(offset_of!(Op, path) == 0);
const _: () = assert!(offset_of!(Op, buf_id) == size_of::<usize>());
const _: () = assert!(offset_of!(Op, dir) == size_of::<usize>() + 4);

impl Op {
    /// The operation of chunk `buf_id`, whose memory is `pages`; few data are in `private`. May
    /// sleep.
    pub(crate) fn new(
        path: &Arc<Path>,
        buf_id: u16,
        pages: Arc<Pages>,
        private: Option<Arc<Pages>>,
        lease: &Arc<Lease>,
    ) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                path: Arc::new(path.clone(), GFP_KERNEL)?,
                buf_id: u32::from(buf_id),
                dir: Dir::Read as u8,
                busy: false,
                arrival: Arrival::default(),
                since: 0,
                request: None,
                is_private: false,
                pages,
                private,
                usr: [0; USR_ROOM],
                long_usr: KVec::new(),
                lease: lease.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The path, for when the operation is somewhere else.
    fn keep_path(&self) -> Arc<Arc<Path>> {
        self.path.clone()
    }

    /// The chunk.
    pub(crate) fn buf_id(&self) -> u16 {
        // CAST: it was made from one.
        self.buf_id as u16
    }

    /// Where the current request came from.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The current request, once it was parsed.
    pub(crate) fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// When the current request arrived, in nanoseconds.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// A request arrived for the chunk, at `now` nanoseconds.
    pub(crate) fn arrive(&mut self, arrival: Arrival, now: u64) {
        self.arrival = arrival;
        self.since = now;
        self.request = None;
        self.is_private = false;
    }

    /// Whether the user works on pages that the client has no key to.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// The request was parsed, and is in the chunk, where its client may change it: takes it to
    /// private pages if it has up to `most` bytes of data, and all of it fits. [`Op::take_data`] has
    /// to follow. Does not sleep.
    pub(crate) fn make_private(&mut self, request: Request, most: u32) -> bool {
        let fits = self.private.is_some()
            && request.data_len() <= most
            && usize::from(request.usr_len()) < USR_ROOM;
        // It does not allocate then.
        self.is_private = fits && self.begin(request).is_ok();
        self.is_private
    }

    /// Copies the data of a write to the private pages. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has none, or they are too few.
    pub(crate) fn take_data(&self) -> Result {
        match (&self.request, &self.private) {
            (Some(request), Some(private)) if request.dir() == Dir::Write => {
                private.copy_from(&self.pages, request.data_range().len())
            }
            (Some(_), Some(_)) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// The memory that the user works on.
    fn memory(&self) -> &Arc<Pages> {
        match &self.private {
            Some(private) if self.is_private => private,
            _ => &self.pages,
        }
    }

    /// The request was answered: nothing is kept of it that takes memory.
    pub(crate) fn rest(&mut self) {
        if !self.long_usr.is_empty() {
            self.long_usr = KVec::new();
        }
    }

    /// The session's word says that this operation runs.
    pub(crate) fn set_busy(&mut self) {
        self.busy = true;
    }

    /// Takes over the duty to give the session's word back.
    pub(crate) fn take_busy(&mut self) -> bool {
        core::mem::take(&mut self.busy)
    }

    /// The request was parsed: copies its user message out of the chunk, where a client that does
    /// not have its key invalidated could change it later. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` for a message that is longer than usual.
    pub(crate) fn begin(&mut self, request: Request) -> Result {
        let range = request.usr_range();
        let len = range.len();

        self.dir = request.dir() as u8;
        self.request = Some(request);
        match self.usr.split_at_mut_checked(len) {
            Some((message, rest)) if !rest.is_empty() => {
                self.pages.read(range.start, message)?;
                rest.fill(0);
            }
            _ => {
                let room = len.checked_add(1).ok_or(EINVAL)?;
                // The client's IO may wait for this.
                noio::scope(|| self.long_usr.resize(room, 0, GFP_KERNEL))?;
                let message = self.long_usr.get_mut(..len).ok_or(EINVAL)?;
                self.pages.read(range.start, message)?;
            }
        }
        Ok(())
    }

    fn usr(&self) -> &[u8] {
        let len = self.request.map_or(0, |r| usize::from(r.usr_len()));
        let message: &[u8] = if self.long_usr.is_empty() {
            &self.usr
        } else {
            &self.long_usr
        };
        message.get(..len).unwrap_or_default()
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.take_busy() {
            self.path
                .session()
                .end(self.buf_id(), self.path.incarnation());
        }
    }
}

/// What all operations of a path share: when it goes, they are gone.
pub(crate) struct Lease {
    end: Arc<OpsEnd>,
    queue: Queue,
    /// Of the chunks, whose pages the operations have.
    _memory: Share,
}

impl Lease {
    /// A lease of `path`, whose chunks are counted by `memory`. May sleep.
    pub(crate) fn new(path: &Arc<Path>, memory: Share) -> Result<Arc<Self>> {
        let end = Arc::pin_init(
            pin_init!(OpsEnd {
                path <- new_spinlock_irq!(Some(path.clone()), "rtrs_srv_lease"),
                work <- new_work!("rtrs_srv_ops_end"),
            }),
            GFP_KERNEL,
        )?;
        let queue = path.session().queue().clone();
        let lease = Self {
            end,
            queue,
            _memory: memory,
        };
        Ok(Arc::new(lease, GFP_KERNEL)?)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end.work.enqueue(&self.queue, &self.end);
    }
}

/// Tells the path from a task that its operations are gone. It has a reference of its own to the
/// path, so that the last operation, in an interrupt perhaps, never frees that.
#[pin_data]
struct OpsEnd {
    #[pin]
    path: SpinLockIrq<Option<Arc<Path>>>,
    #[pin]
    work: Work<OpsEnd>,
}

impl_has_work! {
    impl HasWork<Self> for OpsEnd { self.work }
}

impl WorkItem for OpsEnd {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let path = this.path.lock().take();
        if let Some(path) = path {
            path.ops_ended();
        }
    }
}

/// A request that waits for its answer, in the hands of the user.
///
/// It is answered exactly once: by [`Operation::respond`], or with `EIO` if it is dropped. All
/// methods are for any context.
pub struct Operation {
    /// Taken by the answer.
    op: Option<KBox<Op>>,
}

impl Operation {
    /// Hands the request to the user.
    pub(crate) fn new(op: KBox<Op>) -> Self {
        Self { op: Some(op) }
    }

    /// Takes it back without an answer, for code that keeps it in another form.
    pub(crate) fn into_op(mut self) -> Option<KBox<Op>> {
        self.op.take()
    }

    fn request(&self) -> Option<&Request> {
        self.op.as_ref()?.request()
    }

    /// Direction of the data, as the client sees it: a read wants data from us.
    pub fn dir(&self) -> Dir {
        self.request().map_or(Dir::Read, Request::dir)
    }

    /// Length of the data in bytes.
    pub fn data_len(&self) -> usize {
        self.request().map_or(0, |r| r.data_range().len())
    }

    /// The user message: a private copy, which the client cannot change.
    pub fn usr(&self) -> &[u8] {
        self.op.as_ref().map_or(&[], |op| op.usr())
    }

    /// The memory that starts with the data, for building a disk request.
    ///
    /// Writing more than [`Operation::data_len`] bytes to it harms nobody, but is not sent.
    pub fn pages(&self) -> Option<&Arc<Pages>> {
        Some(self.op.as_ref()?.memory())
    }

    /// Copies data of a write request from offset `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond [`Operation::data_len`].
    pub fn read_data(&self, off: usize, buf: &mut [u8]) -> Result {
        self.data_range(off, buf.len())?.read(off, buf)
    }

    /// Copies the answer's data of a read request to offset `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond [`Operation::data_len`].
    pub fn write_data(&self, off: usize, buf: &[u8]) -> Result {
        self.data_range(off, buf.len())?.write(off, buf)
    }

    fn data_range(&self, off: usize, len: usize) -> Result<&Arc<Pages>> {
        let end = off.checked_add(len).ok_or(EINVAL)?;
        if end > self.data_len() {
            return Err(EINVAL);
        }
        self.pages().ok_or(EINVAL)
    }

    /// Answers. If the path is gone meanwhile the answer goes with it: the client sends the
    /// request again over another one.
    pub fn respond(mut self, result: Result) {
        self.finish(result.map_or_else(|e| e.to_errno(), |()| 0));
    }

    #[cold]
    fn forgotten(&mut self) {
        self.finish(EIO.to_errno());
    }

    /// [`Operation::respond`] with 0 or a negative errno.
    pub(crate) fn finish(&mut self, errno: i32) {
        if let Some(op) = self.op.take() {
            let path = op.keep_path();
            // An operation that is left over keeps the path from being freed here, in whatever
            // context this is. If none is left it is in the chunk's slot, and that goes only after
            // an RCU grace period, which does not end before this guard is gone.
            let guard = rcu::read_lock();
            let left = path.answer(op, errno, &guard);
            drop(path);
            drop(left);
        }
    }
}

impl Drop for Operation {
    #[inline(always)]
    fn drop(&mut self) {
        if self.op.is_some() {
            self.forgotten();
        }
    }
}
