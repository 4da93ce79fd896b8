// SPDX-License-Identifier: GPL-2.0

//! The C API of rtrs-client.
//!
//! Declared in `rtrs.h`, described, with the context each function may be called
//! from, in `Documentation/api-c.rst`. This is a translation: pointers become
//! values, values become pointers, everything else is in [`crate::session`].

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
        Dir,
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
        // CAST: the numbers of the C enumeration.
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

/// `struct rtrs_permit`: what a caller may look at behind the pointer it gets is
/// its own space, `pdu_sz` bytes behind these 16.
#[repr(C)]
pub(crate) struct RtrsPermit {
    con_type: c_uint,
    cpu_id: c_uint,
    mem_id: c_uint,
    mem_off: c_uint,
}

static_assert!(size_of::<RtrsPermit>() == 16);

/// `enum rtrs_clt_con_type`: the service connection.
const RTRS_ADMIN_CON: c_uint = 0;
/// `enum wait_type`: do not wait.
const RTRS_PERMIT_NOWAIT: c_uint = 0;
/// `READ` and `WRITE` of the block layer.
const READ: c_int = 0;
const WRITE: c_int = 1;

/// `struct rtrs_clt_sess`: a session and what its C user sees of permits.
pub(crate) struct RtrsCltSess {
    ready: Ready,
    /// The `struct rtrs_permit`s with their space, as words for alignment.
    memory: KVVec<u64>,
    /// Bytes from one to the next.
    stride: usize,
}

impl RtrsCltSess {
    fn new(ready: Ready, pdu_sz: usize) -> Result<Self> {
        let depth = ready.permits().len();
        let stride = size_of::<RtrsPermit>()
            .checked_add(pdu_sz)
            .and_then(|n| n.checked_next_multiple_of(size_of::<u64>()))
            .ok_or(EINVAL)?;
        let words = stride
            .checked_mul(depth)
            .ok_or(EINVAL)?
            .div_ceil(size_of::<u64>());
        let mut memory = KVVec::with_capacity(words, GFP_KERNEL)?;
        memory.extend_with(words, 0u64, GFP_KERNEL)?;
        Ok(Self {
            ready,
            memory,
            stride,
        })
    }

    /// Where the C permit `id` is.
    #[inline(always)]
    fn permit_ptr(&self, id: usize) -> *mut RtrsPermit {
        self.memory
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(id.wrapping_mul(self.stride))
            .cast_mut()
            .cast()
    }

    /// Takes a permit; null if there is none, see [`Ready::get_permit`].
    #[inline(always)]
    fn get(&self, con_type: c_uint, wait: bool) -> *mut RtrsPermit {
        let connection = match con_type {
            RTRS_ADMIN_CON => Connection::Admin,
            _ => Connection::Io,
        };
        let Some((id, cpu)) = self.ready.get_permit(connection, wait) else {
            return core::ptr::null_mut();
        };
        let ptr = self.permit_ptr(id);
        // SAFETY: inside `memory`, aligned, and by the permit nobody else's.
        unsafe {
            ptr.write(RtrsPermit {
                con_type,
                cpu_id: cpu,
                // CAST: Less than the queue depth.
                mem_id: id as u32,
                mem_off: 0,
            });
        }
        ptr
    }

    /// The same, of one who waits. Sleeps.
    #[inline(never)]
    fn get_waiting(&self, con_type: c_uint) -> *mut RtrsPermit {
        self.get(con_type, true)
    }

    /// The number of a C permit, if it is one of these, and perhaps if it is none at all. It says itself
    /// which one, unless its user has written over that: then it is not where that one is.
    ///
    /// # Safety
    ///
    /// `permit` must be readable.
    #[inline(always)]
    unsafe fn id_of(&self, permit: *const RtrsPermit) -> Option<usize> {
        // SAFETY: By the function's requirement. Volatile, as what is not a permit may be changing.
        let id = unsafe { (&raw const (*permit).mem_id).read_volatile() };
        // CAST: `usize` has at least 32 bits.
        let id = id as usize;
        core::ptr::eq(self.permit_ptr(id), permit).then_some(id)
    }
}

fn to_ptr(result: Result<KBox<RtrsCltSess>>) -> *mut RtrsCltSess {
    match result {
        Ok(session) => KBox::into_raw(session),
        Err(e) => e.to_ptr(),
    }
}

/// Opens a session. Process context; sleeps.
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
    // SAFETY: By the function's requirement.
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
                // SAFETY: By the function's requirement.
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
                // SAFETY: By the function's requirement.
                Some(unsafe { SockAddr::from_raw(path.src) }?)
            };
            // SAFETY: By the function's requirement.
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
            .and_then(|ready| RtrsCltSess::new(ready, pdu_sz))
            .and_then(|sess| Ok(KBox::new(sess, GFP_KERNEL)?));
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
    // SAFETY: By the function's requirement.
    let sess = unsafe { KBox::from_raw(sess) };
    client::close(sess.ready.session());
}

/// Takes a permit; null if there is none. Any context without `wait`, else
/// process context.
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
    // SAFETY: By the function's requirement.
    let sess = unsafe { &*sess };
    match wait {
        RTRS_PERMIT_NOWAIT => sess.get(con_type, false),
        _ => sess.get_waiting(con_type),
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
    // SAFETY: By the function's requirement.
    let sess = unsafe { &*sess };
    // SAFETY: By the function's requirement.
    if let Some(id) = unsafe { sess.id_of(permit) } {
        sess.ready.put_permit(id);
    }
}

/// Sends a request. Any context. 0, and `conf_fn` will be called; or a negative
/// errno, and it will not.
///
/// # Safety
///
/// `ops` must be valid, its `conf_fn` callable once with its `priv` from softirq.
/// `sess` and `permit` must be valid; `vec` must have `nr` pieces; unless `sg_cnt`
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
    _len: usize,
    sg: *mut c_void,
    sg_cnt: c_uint,
) -> c_int {
    // SAFETY: By the function's requirement.
    let (ops, sess, message) = unsafe { (&*ops, &*sess, Message::from_raw(vec, nr)) };
    // SAFETY: By the function's requirement.
    let (Some(conf_fn), Some(id)) = (ops.conf_fn, unsafe { sess.id_of(permit) }) else {
        return EINVAL.to_errno();
    };
    let dir = match dir {
        READ => Dir::Read,
        WRITE => Dir::Write,
        _ => return EINVAL.to_errno(),
    };
    let mut turn = match sess.ready.begin(id) {
        Ok(turn) => turn,
        Err(e) => return e.to_errno(),
    };
    // What the list describes; `_len` says the same, if the caller is right.
    // SAFETY: By the function's requirement.
    turn.loan = unsafe { Loan::from_raw(conf_fn, ops.private, sg, sg_cnt) };
    // Messages of the service connection, and those without data, are looked at first.
    let sent = match sg_cnt == 0 || turn.connection == Connection::Admin {
        true => sess.ready.submit_observed(id, turn, dir, message),
        false => sess.ready.submit(id, turn, dir, message),
    };
    match sent {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Handles completions of a polled queue; how many there were.
///
/// `index` is the number of the caller's hardware queue. RNBD counts its polled ones
/// after the others, from the number of CPUs that were online when the device was mapped,
/// which we do not know. Any number names a queue of ours, and always the same: that is
/// all it takes.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_rdma_cq_direct(
    sess: *mut RtrsCltSess,
    index: c_uint,
) -> c_int {
    // SAFETY: By the function's requirement.
    let session = unsafe { (*sess).ready.session() };
    let Some(queue) = index.checked_rem(u32::from(session.poll_cons())) else {
        return 0;
    };
    // CAST: less than a `u16`.
    let queue = queue as u16;
    session.hint_queue(queue);
    let found = session.poll(queue);
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

/// The session's limits; `-ECOMM` while requests fail for want of a path. Any context.
///
/// # Safety
///
/// `sess` must come from `rtrs_clt_open()`, `attr` must be writable.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_clt_query(
    sess: *mut RtrsCltSess,
    attr: *mut RtrsAttrs,
) -> c_int {
    // SAFETY: By the function's requirement.
    let session = unsafe { (*sess).ready.session() };
    // Who asks has it: it is not to be told of its session before.
    session.hand_over();
    match session.limits() {
        // A path that is lost for a moment is no reason: requests wait for it, and RNBD, which asks
        // while it makes its devices anew, never asks again.
        Some(limits) if !session.is_failing() => {
            // SAFETY: By the function's requirement.
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
