// SPDX-License-Identifier: GPL-2.0

//! One request of a client, from its arrival to its answer.
//!
//! # Lifetime
//!
//! An `Op` keeps its chunk's pages, but not the queue pair, memory region or device: those go when
//! the path closes, while a slow disk may still work on the pages. The rest of a path is freed by
//! the last `Op`, through the reference that all of them share.
//!
//! # Context
//!
//! Any, unless stated otherwise: disks complete in interrupts. That is also why dropping the last
//! `Op` only queues work.

use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    ib::{
        Buffer,
        KeyRight,
        Message, //
    },
    noio,
    pages::{
        Around,
        PagePair,
        Pages, //
    }, //
};
use rtrs_core::proto::{
    DataDir,
    Request, //
};

use super::{
    marks::{
        AnswerKind,
        Marks,
        Stage, //
    },
    Arrival,
    Home, //
};

/// Bytes of user message that an [`Op`] has room for without allocating.
///
/// The longest message of RNBD fits. The bytes after a shorter one are zero, since RNBD looks for
/// the end of a string in its messages without regard to their length. A longer message is followed
/// by one zero.
pub(super) const USR_ROOM: usize = 320;

/// No connection has this number: there are at most 4096.
const ANY: u16 = u16::MAX;

/// The work request that a stalled operation was about to post.
#[derive(Clone, Copy)]
pub(crate) enum Deferred {
    /// The invalidation of the chunk's key.
    Invalidate,
    /// The answer, with this errno (negative or 0).
    Answer(i32),
}

/// A request as C code gets it.
///
/// # Invariants
///
/// `data` and `usr` are memory of `op`, or that `op` keeps, of at least `data_len` and `usr_len` bytes.
/// Zeroes follow a user message up to [`USR_ROOM`] bytes; at least one follows in any case.
pub(crate) struct Parts<H: Home> {
    data: *mut u8,
    data_len: usize,
    usr: *const u8,
    usr_len: usize,
    op: KBox<Op<H>>,
}

impl<H: Home> Parts<H> {
    /// The address of the data, and the number of their bytes.
    #[inline(always)]
    pub(crate) fn data(&self) -> (*mut u8, usize) {
        (self.data, self.data_len)
    }

    /// The same of the user message.
    #[inline(always)]
    pub(crate) fn usr(&self) -> (*const u8, usize) {
        (self.usr, self.usr_len)
    }

    /// The operation.
    #[inline(always)]
    pub(crate) fn op(&self) -> &Op<H> {
        &self.op
    }

    /// The operation, which keeps the memory.
    #[inline(always)]
    pub(crate) fn into_op(self) -> KBox<Op<H>> {
        self.op
    }
}

/// One chunk's request.
///
/// C code that was compiled against mainline's header reads `dir` (`trace_process_rdma()` of RNBD),
/// so the first three fields have the same place as there. The fields that each request uses are in
/// the first two cache lines.
#[repr(C, align(64))]
pub(crate) struct Op<H: Home> {
    home: Arc<H>,
    buf_id: u32,
    marks: Marks,
    /// [`Request::NOTHING`], or an earlier one, until it was read.
    request: Request,
    arrival: Arrival,
    /// Bytes of `usr` from its start that may not be zero.
    written: u16,
    /// Pages of the chunk, and private pages, if there are any.
    pages: PagePair,
    /// The right to change the chunk's key, if it changes.
    key_right: KeyRight,
    /// The page in which the data of the last write that was sent were received, if writes may be.
    received: Option<Buffer>,
    usr: [u8; USR_ROOM],
    /// A user message that does not fit into `usr` with a zero behind it, and a zero.
    long_usr: KVec<u8>,
    deferred: Deferred,
    /// The connection that last registered the chunk's key on its queue; [`ANY`] if that was before
    /// the path was started. The key is invalidated on that connection. On another queue the
    /// invalidation could overtake the registration, if the client makes the first queue wait, and
    /// the key would be valid while the user has the data.
    registered_on: u16,
    /// Dropped last: afterwards this operation does not need the home any more.
    ops_ref: Arc<H::OpsRef>,
}

impl<H: Home> Op<H> {
    /// The layout that C code relies on, and the first cache line.
    const LAYOUT: () = {
        assert!(offset_of!(Self, home) == 0);
        assert!(offset_of!(Self, buf_id) == size_of::<usize>());
        assert!(offset_of!(Self, marks) == size_of::<usize>() + 4);
        assert!(offset_of!(Marks, dir) == 0);
        assert!(offset_of!(Self, pages) <= 64);
    };

    /// Makes the operation of chunk `buf_id`, which has the memory `pages`, and a key that the holder of
    /// `key_right` can change; data that the client must not change, and that fit, go to `private`. If
    /// writes may be sent, `received` is a page to exchange for that of a receive. May sleep.
    pub(crate) fn new(
        home: &Arc<H>,
        buf_id: u16,
        pages: Arc<Pages>,
        key_right: KeyRight,
        private: Option<Arc<Pages>>,
        received: Option<Buffer>,
        ops_ref: &Arc<H::OpsRef>,
    ) -> Result<KBox<Self>> {
        const { Self::LAYOUT };
        Ok(KBox::new(
            Self {
                home: home.clone(),
                buf_id: u32::from(buf_id),
                marks: Marks::UNREAD,
                request: Request::NOTHING,
                arrival: Arrival::default(),
                written: 0,
                pages: PagePair::new(pages, private),
                key_right,
                received,
                usr: [0; USR_ROOM],
                long_usr: KVec::new(),
                deferred: Deferred::Answer(0),
                registered_on: ANY,
                ops_ref: ops_ref.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The owner of the chunk.
    #[inline(always)]
    pub(crate) fn home(&self) -> &Arc<H> {
        &self.home
    }

    /// The number of the chunk.
    #[inline(always)]
    pub(crate) fn buf_id(&self) -> u16 {
        // CAST: The value was a `u16`.
        self.buf_id as u16
    }

    /// The connection over which the current request came.
    #[inline(always)]
    pub(crate) fn cid(&self) -> u16 {
        self.arrival.cid
    }

    /// Where the current request is.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The current request, if it was [read](Self::is_read).
    #[inline(always)]
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Direction of the data of a request that was read.
    #[inline(always)]
    pub(crate) fn dir(&self) -> DataDir {
        self.marks.dir
    }

    /// Whether the current request was read.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(self.marks.stage, Stage::Unread | Stage::Late)
    }

    /// Whether the message is read when the chunk's key is invalid, by a short way.
    #[inline(always)]
    pub(crate) fn is_late(&self) -> bool {
        self.marks.stage == Stage::Late
    }

    /// Whether the operation is ready for the user.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.marks.stage.is_ready()
    }

    /// Copies its data, if that is all that has to come before. Returns whether it is ready for the user.
    /// Does not sleep.
    #[inline(always)]
    pub(crate) fn copy_if_usual(&mut self) -> bool {
        self.marks.stage == Stage::Uncopied && self.take_data().is_ok()
    }

    /// The kind of its answer, if there is no error.
    #[inline(always)]
    pub(crate) fn answer_kind(&self) -> AnswerKind {
        self.marks.answer
    }

    /// A request arrived for the chunk.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        self.arrival = arrival;
    }

    /// A long request arrived, most likely a write. Its message is read when the chunk's key is invalid.
    #[inline(always)]
    pub(super) fn arrive_late(&mut self, arrival: Arrival, marks: Marks) {
        self.arrival = arrival;
        self.marks = marks;
    }

    /// The request is read later.
    pub(crate) fn forget_request(&mut self) {
        self.request = Request::NOTHING;
        self.marks = Marks {
            busy: self.marks.busy,
            ..Marks::UNREAD
        };
    }

    /// Whether the user works on pages that the client has no key to.
    #[inline(always)]
    pub(crate) fn is_private(&self) -> bool {
        self.marks.stage.is_private()
    }

    /// Whether `request` is a read of data, and there are private pages for them.
    #[inline(always)]
    pub(crate) fn has_private_for(&self, request: &Request) -> bool {
        // CAST: `usize` has at least 32 bits.
        request.dir() == DataDir::Read && request.data_len() as usize <= self.pages.both()
    }

    /// Whether there are private pages.
    pub(crate) fn has_private(&self) -> bool {
        self.pages.is_two()
    }

    /// Makes the user work on the private pages. [`Op::take_data`] has to follow.
    pub(crate) fn make_private(&mut self) {
        self.marks.stage = match self.request.dir() {
            DataDir::Read => Stage::Private,
            DataDir::Write => Stage::Uncopied,
        };
    }

    /// Copies the data of a write to the private pages, if the user works on those. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are too few pages.
    #[inline(always)]
    pub(crate) fn take_data(&mut self) -> Result {
        if self.marks.stage == Stage::Uncopied {
            let len = self.request.data_range().len();
            self.pages.copy_to_second(len)?;
            self.marks.stage = Stage::Private;
        }
        Ok(())
    }

    /// Takes the data of a write that was sent, with the page that they are in. Returns `false` if there
    /// is no page for the next message.
    #[inline(always)]
    pub(super) fn receive(&mut self, message: &mut Message<'_>) -> bool {
        match &mut self.received {
            Some(page) => message.exchange(page).is_ok(),
            None => false,
        }
    }

    /// The page with the data of a write that was sent.
    #[inline(always)]
    fn received(&self) -> Option<&Buffer> {
        match self.marks.stage {
            Stage::Received => self.received.as_ref(),
            _ => None,
        }
    }

    /// The memory that the user works on.
    pub(crate) fn memory(&self) -> &Arc<Pages> {
        match self.received() {
            Some(page) => page.pages(),
            None => self.pages.get(self.is_private()),
        }
    }

    /// Its kernel address, for C code.
    #[inline(always)]
    pub(crate) fn address(&self) -> *mut u8 {
        match self.received() {
            Some(page) => page.as_ptr(),
            None => self.pages.as_ptr(self.is_private()),
        }
    }

    /// The right to change the chunk's key, which is used when that is invalid.
    #[inline(always)]
    pub(super) fn key_right(&mut self) -> &mut KeyRight {
        &mut self.key_right
    }

    /// The request was answered: frees its memory. Not needed for a request with
    /// [room](Op::has_room).
    pub(crate) fn forget_message(&mut self) {
        self.long_usr = KVec::new();
    }

    /// The session's state of the chunk says that this operation runs.
    pub(crate) fn set_busy(&mut self) {
        self.marks.busy = true;
    }

    /// The caller takes over the duty to give back the session's state of the chunk.
    #[inline(always)]
    pub(super) fn clear_busy(&mut self) {
        self.marks.busy = false;
    }

    /// The action that is tried again when there is room.
    pub(crate) fn deferred(&self) -> Deferred {
        self.deferred
    }

    /// Sets the action that has to wait for room.
    pub(crate) fn set_deferred(&mut self, deferred: Deferred) {
        self.deferred = deferred;
    }

    /// The key is registered with the answer, on the connection that carries the answer.
    pub(super) fn note_registered(&mut self) {
        self.registered_on = self.arrival.cid;
    }

    /// The connection on which the chunk's key was last registered, if that was since the path was
    /// started; otherwise the number of no connection.
    #[inline(always)]
    pub(crate) fn registered_on(&self) -> u16 {
        self.registered_on
    }

    /// The connection on which the key has to be invalidated.
    pub(crate) fn invalidate_on(&self) -> u16 {
        match self.registered_on {
            ANY => self.arrival.cid,
            on => on,
        }
    }

    /// Whether [`begin`](Op::begin) of a request allocates nothing, and does not fail.
    #[inline(always)]
    pub(crate) fn has_room(request: &Request) -> bool {
        usize::from(request.usr_len()) < USR_ROOM
    }

    /// Begins a request that is read as it arrives over connection `cid`, with its `message` in the
    /// chunk. Returns `false` if there is no [room](Op::has_room) for its user message.
    #[inline(always)]
    pub(super) fn begin_at_once<const WORDS: usize>(
        &mut self,
        request: Request,
        marks: Marks,
        cid: u16,
        message: &Around<'_, WORDS>,
    ) -> bool {
        if !Self::has_room(&request) {
            return false;
        }
        self.request = request;
        self.marks = marks;
        self.arrival.cid = cid;
        let len = usize::from(request.usr_len());
        let Some(usr) = self.usr.get_mut(..len) else {
            return false;
        };
        if message.read_before(usr).is_none() {
            return false;
        }
        self.clear_behind(&request);
        true
    }

    /// Begins the write of [`Op::arrive_late`]; its parts are ready for the user then. The client cannot
    /// change its message any more. Does not sleep.
    ///
    /// # Errors
    ///
    /// The operation, if it is not a usual write: then it counts as not read.
    #[inline(always)]
    pub(crate) fn begin_late(mut op: KBox<Self>) -> Result<Parts<H>, KBox<Self>> {
        if !op.read_late() {
            return Err(op);
        }
        // INVARIANT: The data are in the chunk. The user message is in `usr`, shorter than that, and the
        // rest was cleared.
        Ok(Parts {
            data: op.pages.as_ptr(false),
            data_len: op.request.data_range().len(),
            usr: op.usr.as_ptr(),
            usr_len: usize::from(op.request.usr_len()),
            op,
        })
    }

    /// Reads the message of a late write, and copies the user message. Returns `false` if it is not a usual
    /// one: then it counts as not read.
    #[inline(always)]
    fn read_late(&mut self) -> bool {
        let Arrival { off, byte_len, .. } = self.arrival;
        // CAST: `usize` has at least 32 bits.
        let Some(message) = self.pages.first().around::<1>(off as usize) else {
            return self.not_late();
        };
        let [head] = message.words();
        // CAST: The value is 320.
        let Some(request) = Request::parse_write(USR_ROOM as u32, off, byte_len, head) else {
            return self.not_late();
        };
        // Before the copy, so that less has to be kept meanwhile.
        self.request = request;
        self.marks.stage = Stage::Chunk;
        let len = usize::from(request.usr_len());
        let usr = self.usr.get_mut(..len);
        if usr.and_then(|usr| message.read_before(usr)).is_none() {
            return self.not_late();
        }
        let request = self.request;
        self.clear_behind(&request);
        true
    }

    #[cold]
    #[inline(never)]
    fn not_late(&mut self) -> bool {
        self.forget_request();
        false
    }

    /// Copies the user message to `usr`.
    #[inline(always)]
    fn copy_message(&mut self, request: &Request) -> Result {
        let len = usize::from(request.usr_len());
        let message = self.usr.get_mut(..len).ok_or(EINVAL)?;

        self.pages
            .first()
            .read(request.usr_range().start, message)?;
        self.clear_behind(request);
        Ok(())
    }

    /// Clears the rest of an earlier message behind that of `request`.
    #[inline(always)]
    fn clear_behind(&mut self, request: &Request) {
        if self.written != request.usr_len() {
            self.clear(request.usr_len());
        }
    }

    /// The request was read: copies its user message out of the chunk, where a client that does
    /// not have its key invalidated could change it later. Does not sleep if there is
    /// [room](Op::has_room), and does not fail then.
    ///
    /// # Errors
    ///
    /// `ENOMEM` for a message that is longer than usual.
    pub(crate) fn begin(&mut self, request: Request) -> Result {
        self.request = request;
        self.marks.dir = request.dir();
        self.marks.stage = Stage::Chunk;
        if Self::has_room(&request) {
            return self.copy_message(&request);
        }
        let range = request.usr_range();
        self.begin_long(range.start, usize::from(request.usr_len()))
    }

    /// Clears the rest of an earlier message, if it was longer, behind one of `len` bytes.
    #[inline(never)]
    fn clear(&mut self, len: u16) {
        let rest = usize::from(len)..usize::from(self.written);

        if let Some(rest) = self.usr.get_mut(rest) {
            rest.fill(0);
        }
        self.written = len;
    }

    #[cold]
    fn begin_long(&mut self, start: usize, len: usize) -> Result {
        let room = len.checked_add(1).ok_or(EINVAL)?;
        // The client's IO may wait for this.
        noio::scope(|| self.long_usr.resize(room, 0, GFP_KERNEL))?;
        let message = self.long_usr.get_mut(..len).ok_or(EINVAL)?;
        self.pages.first().read(start, message)
    }

    /// Its parts, for C code. The request was read.
    #[inline(always)]
    pub(crate) fn into_parts(op: KBox<Self>) -> Parts<H> {
        let usr = op.usr();
        // INVARIANT: These are the memory that the user works on, and the user message: in `usr`, with the
        // rest cleared, or with a zero behind it.
        Parts {
            data: op.address(),
            data_len: op.request.data_range().len(),
            usr: usr.as_ptr(),
            usr_len: usr.len(),
            op,
        }
    }

    /// The user message.
    #[inline(always)]
    pub(crate) fn usr(&self) -> &[u8] {
        let len = usize::from(self.request.usr_len());

        match self.usr.get(..len) {
            Some(message) if Self::has_room(&self.request) => message,
            _ => self.long_message(len),
        }
    }

    #[cold]
    fn long_message(&self, len: usize) -> &[u8] {
        self.long_usr.get(..len).unwrap_or_default()
    }
}

impl<H: Home> Drop for Op<H> {
    fn drop(&mut self) {
        if self.marks.busy {
            self.home.abandoned(self.buf_id());
        }
    }
}
