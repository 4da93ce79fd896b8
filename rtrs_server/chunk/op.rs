// SPDX-License-Identifier: GPL-2.0

//! One request of a client, from its arrival to its answer.
//!
//! # Lifetime
//!
//! An `Op` keeps its chunk's pages, not the queue pair, memory region or device: those go when the
//! path closes, while a slow disk may still work on the pages. What is left of a path then is
//! freed by the last `Op`, by way of the lease that all of them share.
//!
//! # Context
//!
//! Any, unless it is said: disks complete in interrupts. That is also why dropping the last `Op`
//! only queues work.

use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    noio,
    pages::Pages, //
};
use rtrs_core::proto::{
    Dir,
    Request, //
};

use super::{
    Arrival,
    Home, //
};

/// Bytes of user message that an [`Op`] has room for without allocating.
///
/// The longest message of RNBD fits. What follows a shorter one is zero, since RNBD looks for the
/// end of a string in its messages without looking at their length. A longer one is followed by
/// one zero.
const USR_ROOM: usize = 320;

/// What a stalled operation was about to post.
#[derive(Clone, Copy)]
pub(crate) enum Todo {
    /// The invalidation of the chunk's key.
    Invalidate,
    /// The answer, with this errno (negative or 0).
    Answer(i32),
}

/// One chunk's request.
///
/// C code that was compiled against mainline's header reads `dir` (`trace_process_rdma()` of
/// RNBD), so the first three fields have the place that they have there. What each request touches
/// is in the first two lines.
#[repr(C, align(64))]
pub(crate) struct Op<H: Home> {
    home: Arc<H>,
    buf_id: u32,
    dir: u8,
    /// The session's word for this chunk says that we run; to be given back.
    busy: bool,
    /// The user works on `private`.
    is_private: bool,
    arrival: Arrival,
    /// Bytes of `usr` from its start that may not be zero.
    written: u16,
    request: Option<Request>,
    /// Of the chunk.
    pages: Arc<Pages>,
    /// Pages that the client never had a key to, for few data.
    private: Option<Arc<Pages>>,
    usr: [u8; USR_ROOM],
    /// User message that does not leave a zero in `usr`, and a zero.
    long_usr: KVec<u8>,
    todo: Todo,
    /// The connection on whose queue the chunk's key was last registered; `None` if that was before
    /// the path was started, and is over. The key is invalidated there: on another queue that could
    /// come before the registration, if the client lets the first one wait, and the key would be
    /// valid while the user has the data.
    registered_on: Option<u16>,
    /// Dropped last: afterwards nobody needs the home for us.
    lease: Arc<H::Lease>,
}

impl<H: Home> Op<H> {
    /// What C code relies on, and the first line.
    const LAYOUT: () = {
        assert!(offset_of!(Self, home) == 0);
        assert!(offset_of!(Self, buf_id) == size_of::<usize>());
        assert!(offset_of!(Self, dir) == size_of::<usize>() + 4);
        assert!(offset_of!(Self, pages) <= 64);
    };

    /// The operation of chunk `buf_id`, whose memory is `pages`; few data are in `private`. May
    /// sleep.
    pub(crate) fn new(
        home: &Arc<H>,
        buf_id: u16,
        pages: Arc<Pages>,
        private: Option<Arc<Pages>>,
        lease: &Arc<H::Lease>,
    ) -> Result<KBox<Self>> {
        const { Self::LAYOUT };
        Ok(KBox::new(
            Self {
                home: home.clone(),
                buf_id: u32::from(buf_id),
                dir: Dir::Read as u8,
                busy: false,
                is_private: false,
                arrival: Arrival::default(),
                written: 0,
                request: None,
                pages,
                private,
                usr: [0; USR_ROOM],
                long_usr: KVec::new(),
                todo: Todo::Answer(0),
                registered_on: None,
                lease: lease.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// What the chunk belongs to.
    #[inline(always)]
    pub(crate) fn home(&self) -> &Arc<H> {
        &self.home
    }

    /// The chunk.
    #[inline(always)]
    pub(crate) fn buf_id(&self) -> u16 {
        // CAST: It was made from one.
        self.buf_id as u16
    }

    /// Where the current request came from.
    #[inline(always)]
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The current request, once it was parsed.
    #[inline(always)]
    pub(crate) fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// A request arrived for the chunk.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        self.arrival = arrival;
        self.request = None;
        self.is_private = false;
    }

    /// Whether the user works on pages that the client has no key to.
    #[inline(always)]
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether [`begin`](Op::begin) of a request allocates nothing, and does not fail.
    #[inline(always)]
    pub(crate) fn has_room(request: &Request) -> bool {
        usize::from(request.usr_len()) < USR_ROOM
    }

    /// Whether there are private pages for the data of a request with so many bytes.
    #[inline(always)]
    pub(crate) fn has_private(&self) -> bool {
        self.private.is_some()
    }

    /// The user is to work on the private pages. [`Op::take_data`] has to follow.
    #[inline(always)]
    pub(crate) fn make_private(&mut self) {
        self.is_private = true;
    }

    /// If the user works on private pages: copies the data of a write there. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are none, or they are too few.
    #[inline(always)]
    pub(crate) fn take_data(&self) -> Result {
        match &self.request {
            Some(request) if self.is_private && request.dir() == Dir::Write => {
                let private = self.private.as_ref().ok_or(EINVAL)?;
                private.copy_from(&self.pages, request.data_range().len())
            }
            _ => Ok(()),
        }
    }

    /// The memory that the user works on.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Arc<Pages> {
        match &self.private {
            Some(private) if self.is_private => private,
            _ => &self.pages,
        }
    }

    /// The request was answered: nothing is kept of it that takes memory.
    #[inline(always)]
    pub(crate) fn forget_message(&mut self) {
        if !self.long_usr.is_empty() {
            self.drop_long();
        }
    }

    #[cold]
    fn drop_long(&mut self) {
        self.long_usr = KVec::new();
    }

    /// The session's word says that this operation runs.
    #[inline(always)]
    pub(crate) fn set_busy(&mut self) {
        self.busy = true;
    }

    /// Takes over the duty to give the session's word back.
    #[inline(always)]
    pub(crate) fn take_busy(&mut self) -> bool {
        core::mem::take(&mut self.busy)
    }

    /// What it is about to post, if it has to wait for room.
    pub(crate) fn todo(&self) -> Todo {
        self.todo
    }

    /// There is no room for it.
    pub(crate) fn set_todo(&mut self, todo: Todo) {
        self.todo = todo;
    }

    /// The key is registered with the answer, on the connection that is answered on.
    pub(super) fn note_registered(&mut self) {
        self.registered_on = Some(self.arrival.cid);
    }

    /// The connection on which the key is to be invalidated.
    pub(crate) fn invalidate_on(&self) -> u16 {
        self.registered_on.unwrap_or(self.arrival.cid)
    }

    /// The request was parsed: copies its user message out of the chunk, where a client that does
    /// not have its key invalidated could change it later. Does not sleep if there is
    /// [room](Op::has_room), and does not fail then.
    ///
    /// # Errors
    ///
    /// `ENOMEM` for a message that is longer than usual.
    #[inline(always)]
    pub(crate) fn begin(&mut self, request: Request) -> Result {
        let range = request.usr_range();
        let len = usize::from(request.usr_len());

        self.dir = request.dir() as u8;
        self.request = Some(request);
        match self.usr.get_mut(..len) {
            Some(message) if Self::has_room(&request) => {
                self.pages.read(range.start, message)?;
                if self.written > request.usr_len() {
                    self.clear(len);
                }
                self.written = request.usr_len();
                Ok(())
            }
            _ => self.begin_long(range.start, len),
        }
    }

    /// Zeroes for what an earlier message has left behind one of `len` bytes.
    #[inline(never)]
    fn clear(&mut self, len: usize) {
        let end = usize::from(self.written);

        if let Some(rest) = self.usr.get_mut(len..end) {
            rest.fill(0);
        }
    }

    #[cold]
    fn begin_long(&mut self, start: usize, len: usize) -> Result {
        let room = len.checked_add(1).ok_or(EINVAL)?;
        // The client's IO may wait for this.
        noio::scope(|| self.long_usr.resize(room, 0, GFP_KERNEL))?;
        let message = self.long_usr.get_mut(..len).ok_or(EINVAL)?;
        self.pages.read(start, message)
    }

    /// The user message.
    #[inline(always)]
    pub(crate) fn usr(&self) -> &[u8] {
        let len = self.request.map_or(0, |r| usize::from(r.usr_len()));
        let message: &[u8] = if self.long_usr.is_empty() {
            &self.usr
        } else {
            &self.long_usr
        };
        message.get(..len).unwrap_or_default()
    }
}

impl<H: Home> Drop for Op<H> {
    fn drop(&mut self) {
        if self.take_busy() {
            self.home.abandoned(self.buf_id());
        }
    }
}
