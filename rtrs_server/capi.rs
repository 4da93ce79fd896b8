// SPDX-License-Identifier: GPL-2.0

//! The C API of `rtrs.h`: a user of the server like any other.
//!
//! But for the declarations in `trace.rs` this is the only file of the crate with `unsafe` in it: C
//! callers hand in pointers, and what they promise about them is all there is. What may be called
//! from where is as for [`crate::api`].

use core::ffi::{
    c_char,
    c_int,
    c_uint,
    c_void, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

use crate::{
    api::{
        Operation,
        Server,
        ServerConfig,
        Service,
        Session, //
    },
    chunk::Home,
    op::Op,
    path::Path, //
};

/// `RTRS_SRV_LINK_EV_CONNECTED`
const LINK_EV_CONNECTED: c_uint = 0;
/// `RTRS_SRV_LINK_EV_DISCONNECTED`
const LINK_EV_DISCONNECTED: c_uint = 1;

type RdmaEv = unsafe extern "C" fn(
    private: *mut c_void,
    id: *mut Op,
    data: *mut c_void,
    datalen: usize,
    usr: *const c_void,
    usrlen: usize,
) -> c_int;

type LinkEv = unsafe extern "C" fn(sess: *const Session, ev: c_uint, private: *mut c_void) -> c_int;

/// `struct rtrs_srv_ops`
#[repr(C)]
#[derive(Clone, Copy)]
struct Ops {
    rdma_ev: RdmaEv,
    link_ev: LinkEv,
}

/// A C user.
struct CUser {
    ops: Ops,
}

impl CUser {
    fn link(&self, session: &Session, event: c_uint) -> c_int {
        // SAFETY: the user gave us this function for this purpose, and lives until it has closed
        // the server. The session is valid during the call, and after it until the user was told
        // of its end.
        unsafe { (self.ops.link_ev)(session, event, session.private()) }
    }
}

impl Service for CUser {
    fn link_up(&self, session: &Session) -> Result {
        session.set_private(core::ptr::null_mut());
        to_result(self.link(session, LINK_EV_CONNECTED))
    }

    fn link_down(&self, session: &Session) {
        self.link(session, LINK_EV_DISCONNECTED);
    }

    fn request(&self, session: &Session, op: Operation) {
        let Some(op) = op.into_op() else { return };
        let (data, data_len) = (op.memory().as_ptr(), op.request().data_range().len());
        let usr = core::ptr::from_ref(op.usr());
        let id = KBox::into_raw(op);
        // SAFETY: as for `link_ev`. `data` and `usr` point into `*id`, or what it owns, which we
        // leave alone until the user gives it back. The user owns the operation from here on: it
        // may answer, in another thread, before this returns.
        let ret = unsafe {
            (self.ops.rdma_ev)(
                session.private(),
                id,
                data.cast(),
                data_len,
                usr.cast(),
                usr.len(),
            )
        };
        if ret != 0 {
            // SAFETY: by returning an error the user gives back what it got.
            unsafe { refused(id, ret) };
        }
    }
}

/// # Safety
///
/// As for [`answer`].
#[cold]
#[inline(never)]
unsafe fn refused(id: *mut Op, errno: c_int) {
    // SAFETY: By the function's requirement.
    unsafe { answer(id, errno) }
}

/// # Safety
///
/// `id` must be what [`KBox::into_raw`] returned in `request`, and not be used by anybody else, nor
/// after this.
#[inline(always)]
unsafe fn answer(id: *mut Op, errno: c_int) {
    // SAFETY: By the function's requirement.
    let op = unsafe { KBox::from_raw(id) };

    Path::answer(op, errno);
}

/// Opens a server on `port`. Sleeps. An `ERR_PTR` on failure.
///
/// # Safety
///
/// `ops` must point to valid operations, which are copied; the functions must stay until
/// [`rtrs_srv_close`] has returned.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_open(ops: *const Ops, port: u16) -> *mut Server {
    // SAFETY: By the function's requirement.
    let ops = unsafe { *ops };

    let open = || {
        let user = Arc::new(CUser { ops }, GFP_KERNEL)?;
        let server = Server::open(user, &ServerConfig::new(port))?;
        Ok(KBox::new(server, GFP_KERNEL)?)
    };
    match open() {
        Ok(server) => KBox::into_raw(server),
        Err(e) => {
            let e: Error = e;
            // An `ERR_PTR`.
            core::ptr::without_provenance_mut(e.to_errno() as usize)
        }
    }
}

/// Closes a server. Sleeps until the end of all sessions.
///
/// # Safety
///
/// `ctx` must come from [`rtrs_srv_open`], and not be used after this.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_close(ctx: *mut Server) {
    // SAFETY: By the function's requirement.
    drop(unsafe { KBox::from_raw(ctx) });
}

/// Answers a request with 0 or a negative errno. Any context.
///
/// Always true: what has to wait for room in a queue is our business.
///
/// # Safety
///
/// `id` must be of a request for which the user's function returned 0, or has not returned, and
/// not have been answered.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_resp_rdma(id: *mut Op, errno: c_int) -> bool {
    // SAFETY: By the function's requirement.
    unsafe { answer(id, errno) };
    true
}

/// Sets what is passed with each event of the session. Any context.
///
/// # Safety
///
/// `sess` must be a session of whose end the user was not told.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_set_sess_priv(sess: *const Session, private: *mut c_void) {
    // SAFETY: By the function's requirement.
    unsafe { (*sess).set_private(private) };
}

/// Copies the session's name, cut to `len` bytes with the terminating NUL. Any context.
///
/// `-ENOTCONN` if it has none.
///
/// # Safety
///
/// As for [`rtrs_srv_set_sess_priv`]; `pathname` must have room for `len` bytes.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_get_path_name(
    sess: *const Session,
    pathname: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: By the function's requirement.
    let name = unsafe { (*sess).name() }.as_bytes();
    let Some(room) = len.checked_sub(1) else {
        return EINVAL.to_errno();
    };
    if name.is_empty() {
        return rtrs_bindings::errno::ENOTCONN.to_errno();
    }
    let copied = name.len().min(room);
    // SAFETY: there is room for `len` bytes, of which this writes at most `len - 1` and one; the
    // name is no part of the user's buffer.
    unsafe {
        core::ptr::copy_nonoverlapping(name.as_ptr(), pathname.cast(), copied);
        pathname.add(copied).write(0);
    }
    0
}

/// How many requests the session can have at a time. Any context.
///
/// # Safety
///
/// As for [`rtrs_srv_set_sess_priv`].
#[no_mangle]
unsafe extern "C" fn rtrs_srv_get_queue_depth(sess: *const Session) -> c_int {
    // SAFETY: By the function's requirement.
    c_int::from(unsafe { (*sess).queue_depth() })
}
