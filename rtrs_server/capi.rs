// SPDX-License-Identifier: GPL-2.0

//! The C API of `rtrs.h`: a user of the server like any other.
//!
//! Except for the declarations in `trace.rs`, this is the only file of the crate that contains
//! `unsafe`: C callers pass pointers, and the compiler cannot check that these are valid. The
//! contexts from which functions may be called are as for [`crate::api`].

use core::ffi::{
    c_char,
    c_int,
    c_uint,
    c_void, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

use crate::{
    api::{
        Operation,
        Server,
        ServerConfig,
        Service,
        Session, //
    },
    chunk::{
        Home,
        Parts, //
    },
    context::User,
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
pub(crate) struct CUser {
    ops: Ops,
}

impl CUser {
    fn link(&self, session: &Session, event: c_uint) -> c_int {
        // SAFETY: The user passed this function for this purpose, and lives until it has closed the
        // server. The session is valid during the call, and after it until the user was told of its
        // end.
        unsafe { (self.ops.link_ev)(session, event, session.private()) }
    }
}

impl Service for CUser {
    fn link_up(&self, session: &Session) -> Result {
        session.set_private(core::ptr::null_mut());
        match self.link(session, LINK_EV_CONNECTED) {
            0 => Ok(()),
            // No errno, but an error nevertheless: see rtrs.h.
            1.. => Err(EIO),
            e => to_result(e),
        }
    }

    fn link_down(&self, session: &Session) {
        self.link(session, LINK_EV_DISCONNECTED);
    }

    #[inline(always)]
    fn request(&self, session: &Session, op: Operation) {
        if let Some(op) = op.into_op() {
            self.call(session, Op::into_parts(op));
        }
    }
}

impl CUser {
    /// Hands the request of `parts` to the user, see [`Service::request`].
    #[inline(always)]
    pub(crate) fn call(&self, session: &Session, parts: Parts<Path>) {
        let ((data, data_len), (usr, usr_len)) = (parts.data(), parts.usr());
        let id = KBox::into_raw(parts.into_op());
        // SAFETY: The function is valid as for `link_ev`. By the invariants of the parts, `data` and `usr`
        // have as many bytes, in memory that `*id` owns or keeps, and this module touches neither until
        // the user gives it back. The user owns the operation from here on: it may answer, in another
        // thread, before this returns.
        let ret = unsafe {
            (self.ops.rdma_ev)(
                session.private(),
                id,
                data.cast(),
                data_len,
                usr.cast(),
                usr_len,
            )
        };
        if ret != 0 {
            // SAFETY: `id` comes from `into_raw()` above. By returning an error the user gives it
            // back.
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
    // SAFETY: By the safety requirements of this function, which are those of `answer()`.
    unsafe { answer(id, errno) }
}

/// # Safety
///
/// `id` must be the result of [`KBox::into_raw`] in [`CUser::call`]. It must have no other user, and must
/// not be used after this.
#[inline(always)]
unsafe fn answer(id: *mut Op, errno: c_int) {
    // SAFETY: By the safety requirements of this function, `id` comes from `KBox::into_raw()` and
    // has no other user.
    let op = unsafe { KBox::from_raw(id) };

    Path::answer(op, errno);
}

/// Opens a server on `port`. May sleep. Returns an `ERR_PTR` on failure.
///
/// # Safety
///
/// `ops` must point to valid operations, which are copied; the functions must stay until
/// [`rtrs_srv_close`] has returned.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_open(ops: *const Ops, port: u16) -> *mut Server {
    // SAFETY: By the safety requirements of this function, `ops` points to valid operations.
    let ops = unsafe { *ops };

    let open = || {
        let server = Server::open_for(User::C(CUser { ops }), &ServerConfig::new(port))?;
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

/// Closes a server. Sleeps until all sessions have ended.
///
/// # Safety
///
/// `ctx` must come from [`rtrs_srv_open`], and not be used after this.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_close(ctx: *mut Server) {
    // SAFETY: By the safety requirements of this function, `ctx` comes from `rtrs_srv_open()`, and
    // is not used after this.
    drop(unsafe { KBox::from_raw(ctx) });
}

/// Answers a request with 0 or a negative errno. Any context.
///
/// Always returns true: an answer that has to wait for room in a queue waits in the server.
///
/// # Safety
///
/// `id` must be of a request for which the user's function returned 0, or has not returned yet, and
/// which was not answered.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_resp_rdma(id: *mut Op, errno: c_int) -> bool {
    // SAFETY: By the safety requirements of this function, `id` is an operation that the user has,
    // and that is not answered yet.
    unsafe { answer(id, errno) };
    true
}

/// Sets the pointer that is passed with each event of the session. Any context.
///
/// # Safety
///
/// `sess` must be a session. The user must not have been told of its end.
#[no_mangle]
unsafe extern "C" fn rtrs_srv_set_sess_priv(sess: *const Session, private: *mut c_void) {
    // SAFETY: By the safety requirements of this function, `sess` is a session that has not ended.
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
    // SAFETY: By the safety requirements of this function, `sess` is a session that has not ended.
    let name = unsafe { (*sess).name() }.as_bytes();
    let Some(room) = len.checked_sub(1) else {
        return EINVAL.to_errno();
    };
    if name.is_empty() {
        return rtrs_bindings::errno::ENOTCONN.to_errno();
    }
    let copied = name.len().min(room);
    // SAFETY: By the safety requirements of this function, there is room for `len` bytes. This
    // writes at most `len - 1` bytes and the NUL. The name is not in the user's buffer.
    unsafe {
        core::ptr::copy_nonoverlapping(name.as_ptr(), pathname.cast(), copied);
        pathname.add(copied).write(0);
    }
    0
}

/// Returns the number of requests the session can have at a time. Any context.
///
/// # Safety
///
/// As for [`rtrs_srv_set_sess_priv`].
#[no_mangle]
unsafe extern "C" fn rtrs_srv_get_queue_depth(sess: *const Session) -> c_int {
    // SAFETY: By the safety requirements of this function, `sess` is a session that has not ended.
    c_int::from(unsafe { (*sess).queue_depth() })
}
