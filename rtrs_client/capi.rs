// SPDX-License-Identifier: GPL-2.0

//! The C API of rtrs-client.
//!
//! Declared in `rtrs.h`. Described in `Documentation/api-c.rst`, with the context from which each
//! function may be called. This is a translation between pointers and values; the rest is in
//! [`crate::session`].

use core::{
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_void,
        CStr, //
    },
    mem::size_of, //
};
use kernel::{
    prelude::*,
    str::CStrExt,
    sync::Arc, //
};
use rtrs_bindings::{
    callback::{
        Message,
        Notifier, //
    },
    errno,
    ib::SockAddr,
    loan::Loan, //
};
use rtrs_core::{
    capi::RtrsAddr,
    proto::{
        DataDir,
        SessionName, //
    },
};

use crate::{
    client,
    request::Connection,
    session::{
        Events,
        LinkEvent,
        Options,
        Ready, //
    },
};

/// A user's `link_ev`.
struct LinkEv(Notifier);

impl Events for LinkEv {
    fn link_event(&self, event: LinkEvent) {
        // CAST: The discriminants are the numbers of the C enumeration.
        self.0.call(event as u32);
    }
}

/// `struct rtrs_clt_ops`.
#[repr(C)]
pub(crate) struct RtrsCltOps {
    private: *mut c_void,
    link_ev: Option<unsafe extern "C" fn(*mut c_void, u32)>,
}

/// `struct rtrs_clt_req_ops`.
#[repr(C)]
pub(crate) struct RtrsCltReqOps {
    private: *mut c_void,
    conf_fn: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
}

/// `struct rtrs_attrs`.
#[repr(C)]
pub(crate) struct RtrsAttrs {
    queue_depth: u32,
    max_io_size: u32,
    max_segments: u32,
}

/// `struct rtrs_permit`: a caller gets a pointer to it, and may use the `pdu_sz` bytes of its own
/// space behind these 16. Written at open only.
#[repr(C)]
pub(crate) struct RtrsPermit {
    number: u64,
    /// Identifies the session of the permit, see [`RtrsCltSess::mark`].
    mark: u64,
}

static_assert!(size_of::<RtrsPermit>() == 16);

/// `enum rtrs_clt_con_type`: the service connection.
const RTRS_ADMIN_CON: c_uint = 0;
/// `enum wait_type`: do not wait.
const RTRS_PERMIT_NOWAIT: c_uint = 0;
/// `READ` and `WRITE` of the block layer.
const READ: c_int = 0;
const WRITE: c_int = 1;

/// `struct rtrs_clt_sess`: a session, and the permits as its C user sees them.
pub(crate) struct RtrsCltSess {
    ready: Ready,
    /// The `struct rtrs_permit`s with their space, as words for alignment.
    memory: KVVec<u64>,
    /// Bytes from one permit to the next.
    stride: usize,
}

impl RtrsCltSess {
    fn new(ready: Ready, pdu_sz: usize) -> Result<KBox<Self>> {
        let depth = ready.permits.len();
        let stride = size_of::<RtrsPermit>()
            .checked_add(pdu_sz)
            .and_then(|n| n.checked_next_multiple_of(size_of::<u64>()))
            .ok_or(EINVAL)?;
        let each = stride / size_of::<u64>();
        let words = each.checked_mul(depth).ok_or(EINVAL)?;
        let mut memory = KVVec::with_capacity(words, GFP_KERNEL)?;
        memory.extend_with(words, 0u64, GFP_KERNEL)?;
        let this = Self {
            ready,
            memory,
            stride,
        };
        let mut this = KBox::new(this, GFP_KERNEL)?;
        for id in 0..depth {
            // CAST: Widening. The address of the session is known now.
            let (number, mark) = (id as u64, this.mark(id as u64));
            let permit = this.memory.get_mut(id.wrapping_mul(each)..);
            if let Some([first, second, ..]) = permit {
                (*first, *second) = (number, mark);
            }
        }
        Ok(this)
    }

    /// The mark of permit `number` of this session. No permit of another session that is open has
    /// that number and the same mark.
    #[inline(always)]
    fn mark(&self, number: u64) -> u64 {
        // CAST: Widening.
        (core::ptr::from_ref(self).addr() as u64).wrapping_add(number)
    }

    /// Returns the address of the C permit `id`.
    #[inline(always)]
    fn permit_ptr(&self, id: usize) -> *mut RtrsPermit {
        self.memory
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(id.wrapping_mul(self.stride))
            .cast_mut()
            .cast()
    }

    /// Takes a permit. Returns null if there is none, see [`Ready::get_permit`].
    #[inline(always)]
    fn get(&self, connection: Connection, wait: bool) -> *mut RtrsPermit {
        match self.ready.get_permit(connection, wait) {
            Some(id) => self.permit_ptr(id),
            None => core::ptr::null_mut(),
        }
    }

    /// The same for other permits than those of the usual request. May sleep with `wait`.
    #[inline(never)]
    fn get_unusual(&self, con_type: c_uint, wait: bool) -> *mut RtrsPermit {
        let connection = match con_type {
            RTRS_ADMIN_CON => Connection::Admin,
            _ => Connection::Io,
        };
        self.get(connection, wait)
    }

    /// Returns the number of a C permit of this session. A pointer that is not a held permit may
    /// give a number too. If its user has overwritten what is ours, or if it is of another session,
    /// the mark is not that of the number, and this returns `None`.
    ///
    /// # Safety
    ///
    /// `permit` must be readable.
    #[inline(always)]
    unsafe fn id_of(&self, permit: *const RtrsPermit) -> Option<usize> {
        // SAFETY: By the safety requirements of this function, `permit` is readable. The reads are
        // volatile, because memory that is not a permit may be changing.
        let (number, mark) = unsafe {
            (
                (&raw const (*permit).number).read_volatile(),
                (&raw const (*permit).mark).read_volatile(),
            )
        };
        // CAST: A number that is cut short is still checked where it is used.
        (mark == self.mark(number)).then_some(number as usize)
    }
}

fn to_ptr(result: Result<KBox<RtrsCltSess>>) -> *mut RtrsCltSess {
    match result {
        Ok(session) => KBox::into_raw(session),
        Err(e) => e.to_ptr(),
    }
}

/// Opens a session. Process context; may sleep.
///
/// # Safety
///
/// `ops` must be valid; its `link_ev`, if any, callable with its `priv` until
/// `rtrs_clt_close()` returns. `pathname` must be a C string, `paths` must have
/// `path_cnt` entries with valid addresses.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_open(
    ops: *const RtrsCltOps,
    pathname: *const c_char,
    paths: *const RtrsAddr,
    path_cnt: usize,
    port: u16,
    pdu_sz: usize,
    reconnect_delay_sec: u8,
    max_reconnect_attempts: i16,
    nr_poll_queues: u32,
) -> *mut RtrsCltSess {
    if path_cnt == 0 {
        return EINVAL.to_ptr();
    }
    // SAFETY: By the safety requirements of this function, `ops`, `pathname` and `paths` are valid.
    let (ops, name, paths) = unsafe {
        (
            &*ops,
            <CStr as CStrExt>::from_char_ptr(pathname.cast()),
            core::slice::from_raw_parts(paths, path_cnt),
        )
    };
    to_ptr((|| {
        let name = SessionName::new(name.to_bytes()).map_err(|_| EINVAL)?;
        let events: Option<Arc<dyn Events>> = match ops.link_ev {
            Some(link_ev) => {
                // SAFETY: By the safety requirements of this function, `link_ev` is callable with
                // `priv`.
                let notifier = unsafe { Notifier::from_raw(link_ev, ops.private) };
                Some(Arc::new(LinkEv(notifier), GFP_KERNEL)?)
            }
            None => None,
        };
        let mut addrs = KVec::with_capacity(paths.len(), GFP_KERNEL)?;
        for path in paths {
            let src = if path.src.is_null() {
                None
            } else {
                // SAFETY: By the safety requirements of this function, the address is valid.
                Some(unsafe { SockAddr::from_raw(path.src) }?)
            };
            // SAFETY: By the safety requirements of this function, the address is valid.
            let dst = unsafe { SockAddr::from_raw(path.dst) }?;
            addrs.push((src, dst), GFP_KERNEL)?;
        }
        let session = client::open(
            Options {
                name,
                port,
                reconnect_delay_sec,
                max_reconnect_attempts: i32::from(max_reconnect_attempts),
                fail_after: crate::params::fail_after(),
                poll_cons: nr_poll_queues,
                events,
                may_be_rnbd: true,
            },
            addrs.into_iter(),
        )?;
        let made = session
            .ready()
            .ok_or(EINVAL)
            .and_then(|ready| RtrsCltSess::new(ready, pdu_sz));
        if made.is_err() {
            client::close(&session);
        }
        made
    })())
}

/// Closes a session. Process context; sleeps until permits are back.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`, and not be used afterwards.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_close(sess: *mut RtrsCltSess) {
    // SAFETY: By the safety requirements of this function, `sess` comes from `KBox::into_raw()` in
    // `rtrs_clt_open()`, and is not used afterwards.
    let sess = unsafe { KBox::from_raw(sess) };
    client::close(&sess.ready.session);
}

/// Takes a permit. Returns null if there is none. Any context without `wait`, else process context.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_get_permit(
    sess: *mut RtrsCltSess,
    con_type: c_uint,
    wait: c_uint,
) -> *mut RtrsPermit {
    // SAFETY: By the safety requirements of this function, `sess` is a session that is open.
    let sess = unsafe { &*sess };
    match (wait, con_type) {
        (RTRS_PERMIT_NOWAIT, RTRS_ADMIN_CON) => sess.get_unusual(con_type, false),
        (RTRS_PERMIT_NOWAIT, _) => sess.get(Connection::Io, false),
        _ => sess.get_unusual(con_type, true),
    }
}

/// Gives a permit back. Any context.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`, `permit` from `rtrs_clt_get_permit()` of a session that
/// is not closed.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_put_permit(
    sess: *mut RtrsCltSess,
    permit: *mut RtrsPermit,
) {
    // SAFETY: By the safety requirements of this function, `sess` is a session that is open.
    let sess = unsafe { &*sess };
    // SAFETY: By the safety requirements of this function, `permit` is readable.
    if let Some(id) = unsafe { sess.id_of(permit) } {
        sess.ready.put_permit(id);
    }
}

/// Sends a request. Any context. Returns 0 if `conf_fn` will be called, or a negative errno if it
/// will not.
///
/// # Safety
///
/// `ops` must be valid, its `conf_fn` callable once with its `priv` from softirq.
/// `sess` and `permit` must be valid; `vec` must have `nr` pieces, which must be
/// null or the start and the length of memory of one object; they and this memory
/// must not be written to before the function returns; unless `sg_cnt`
/// is 0, `sg` must be a list of that many entries that stays, with its pages,
/// until `conf_fn` was called.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_request(
    dir: c_int,
    ops: *const RtrsCltReqOps,
    sess: *mut RtrsCltSess,
    permit: *mut RtrsPermit,
    vec: *const c_void,
    nr: usize,
    len: usize,
    sg: *mut c_void,
    sg_cnt: c_uint,
) -> c_int {
    // SAFETY: By the safety requirements of this function, `ops` and `sess` are valid, `vec` has
    // `nr` pieces, and no code writes to them or their memory during the call, which the message
    // does not outlive. An object in C has at most `isize::MAX` bytes.
    let (ops, sess, message) = unsafe { (&*ops, &*sess, Message::from_raw(vec, nr)) };
    // SAFETY: By the safety requirements of this function, `permit` is valid.
    let (Some(conf_fn), Some(id)) = (ops.conf_fn, unsafe { sess.id_of(permit) }) else {
        return EINVAL.to_errno();
    };
    if !matches!(dir, READ | WRITE) {
        return EINVAL.to_errno();
    }
    let dir = match dir == WRITE {
        true => DataDir::Write,
        false => DataDir::Read,
    };
    let mut turn = match sess.ready.begin(id) {
        Ok(turn) => turn,
        Err(e) => return e.to_errno(),
    };
    // SAFETY: By the safety requirements of this function, `conf_fn` is callable with `priv`, and
    // `sg` with its pages stays until that call.
    turn.loan = unsafe { Loan::from_raw(conf_fn, ops.private, sg, sg_cnt, len) };
    // Messages of the service connection, and those without data, are inspected first.
    let sent = match sg_cnt == 0 || turn.connection == Connection::Admin {
        true => sess.ready.submit_observed(turn, dir, message),
        false => sess.ready.submit(turn, dir, message),
    };
    match sent {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Handles completions of a polled queue. Returns the number of completions, or -1 if no path is
/// connected: the block layer does not poll again then.
///
/// `index` is the number of the caller's hardware queue. RNBD counts its polled queues after the
/// others, from the number of CPUs that were online when the device was mapped, which is not known
/// here. That does not matter: each number maps to one polled queue, and always to the same.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_rdma_cq_direct(
    sess: *mut RtrsCltSess,
    index: c_uint,
) -> c_int {
    // SAFETY: By the safety requirements of this function, `sess` is a session that is open.
    let session = unsafe { &(*sess).ready.session };
    let Some(queue) = index.checked_rem(u32::from(session.poll_cons())) else {
        return 0;
    };
    // CAST: Less than `poll_cons()`, which is a `u16`.
    let queue = queue as u16;
    session.hint_queue(queue);
    let found = session.poll(queue);
    if found == 0 && !session.is_connected() {
        return -1;
    }
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

/// Returns the session's limits, or `-ECOMM` while requests fail because there is no path. Any
/// context.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`, `attr` must be writable.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_query(
    sess: *mut RtrsCltSess,
    attr: *mut RtrsAttrs,
) -> c_int {
    // SAFETY: By the safety requirements of this function, `sess` is a session that is open.
    let session = unsafe { &(*sess).ready.session };
    // A caller that asks has the session. It must not get link events before.
    session.hand_over();
    match session.limits() {
        // A path that is lost for a moment is no error: requests wait for it. RNBD asks while it
        // sets up its devices again, and never asks a second time.
        Some(limits) if !session.is_failing() => {
            // SAFETY: By the safety requirements of this function, `attr` is writable.
            unsafe {
                attr.write(RtrsAttrs {
                    queue_depth: u32::from(limits.queue_depth),
                    max_io_size: limits.max_io_size,
                    max_segments: limits.max_segments,
                });
            }
            0
        }
        _ => errno::ECOMM.to_errno(),
    }
}
