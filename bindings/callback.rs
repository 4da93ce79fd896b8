// SPDX-License-Identifier: GPL-2.0

//! C callbacks and C user messages, as values that are safe to use.
//!
//! Whoever makes one from raw pointers vouches for them; from then on they are
//! ordinary values.

use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ptr::NonNull,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    ib::{
        SgBuffer,
        SgList, //
    },
    raw, //
};

/// A call somebody waits for, made once.
///
/// # Invariants
///
/// `func` may be called with `arg`, once, from any context.
///
/// `lent`, if there is one, was lent for this call's request, and stays until
/// `func` or `forget` is called with `arg`.
#[must_use]
pub struct Callback {
    func: unsafe extern "C" fn(*mut c_void, c_int),
    /// What to do with `arg` if the call is never made.
    forget: unsafe fn(*mut c_void),
    arg: *mut c_void,
    /// Whose list the request has.
    lent: Option<NonNull<SgBuffer>>,
}

// SAFETY: by the invariant, from any context; an `SgBuffer` is `Sync`.
unsafe impl Send for Callback {}
// SAFETY: `&Callback` can do nothing.
unsafe impl Sync for Callback {}

/// A request of a user in Rust: its data, and who is told the result.
pub trait Request: Send + Sync + 'static {
    /// Where the data is; asked for once. It is the request's alone until that is
    /// done, or could not be sent.
    fn data(&self) -> Option<&SgBuffer>;

    /// It is done, with 0 or a negative errno; its data can be another one's.
    /// Context: softirq or process; must not sleep.
    fn complete(this: Arc<Self>, result: i32);
}

impl Callback {
    /// # Safety
    ///
    /// `func` must be callable with `arg`, once, from softirq or process
    /// context, at any time until it was called.
    pub unsafe fn from_raw(
        func: unsafe extern "C" fn(*mut c_void, c_int),
        arg: *mut c_void,
    ) -> Self {
        /// # Safety
        ///
        /// None: does nothing.
        unsafe fn nothing(_: *mut c_void) {}
        // INVARIANT: by the function's requirement.
        Self {
            func,
            forget: nothing,
            arg,
            lent: None,
        }
    }

    /// Calls `T::complete` with `request`, which it keeps alive until then, and
    /// the request's data, so many bytes, which are there, and nobody else's, until the call is
    /// made or cancelled.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the data is another request's; this one is dropped then.
    pub fn of_request<T: Request>(request: Arc<T>) -> Result<(Self, SgList, usize)> {
        /// # Safety
        ///
        /// `arg` must come from `Arc::<T>::into_raw`, and not be used again.
        unsafe extern "C" fn trampoline<T: Request>(arg: *mut c_void, result: c_int) {
            // SAFETY: by the function's requirement.
            T::complete(unsafe { Arc::from_raw(arg.cast::<T>()) }, result);
        }
        /// # Safety
        ///
        /// As for `trampoline`.
        unsafe fn forget<T: Request>(arg: *mut c_void) {
            // SAFETY: by the function's requirement.
            drop(unsafe { Arc::from_raw(arg.cast::<T>()) });
        }
        let data = request.data();
        let list = match data {
            // SAFETY: the data is borrowed from `request`, which the callback keeps
            // until it is made or cancelled: only then, and before that, the data
            // is given back.
            Some(data) => unsafe { data.lend() }?,
            None => SgList::EMPTY,
        };
        let len = data.map_or(0, SgBuffer::len);
        let lent = data.map(NonNull::from);
        // INVARIANT: the reference belongs to the callback; `T` is `Send`. The data
        // was lent just now. It stays with the reference, which `func` and `forget`
        // take.
        let callback = Self {
            func: trampoline::<T>,
            forget: forget::<T>,
            arg: Arc::into_raw(request).cast_mut().cast(),
            lent,
        };
        Ok((callback, list, len))
    }

    /// Makes the call. Nothing uses the request's data any more.
    #[inline]
    pub fn call(self, result: i32) {
        self.give_back();
        // SAFETY: by the type invariant; `self` is gone afterwards.
        unsafe { (self.func)(self.arg, result) };
    }

    /// Does without the call. Nothing uses the request's data any more.
    pub fn cancel(self) {
        self.give_back();
        // SAFETY: by the type invariant; `self` is gone afterwards.
        unsafe { (self.forget)(self.arg) };
    }

    /// For who makes the call, or does without, right after this.
    #[inline]
    fn give_back(&self) {
        if let Some(lent) = self.lent {
            // SAFETY: there by the type invariant, as neither function was called
            // yet, and lent for this request, which is over.
            unsafe { lent.as_ref().give_back() };
        }
    }
}

/// A call that can be made again and again.
///
/// # Invariants
///
/// `func` may be called with `arg` from process context.
pub struct Notifier {
    func: unsafe extern "C" fn(*mut c_void, u32),
    arg: *mut c_void,
}

// SAFETY: by the invariant, from any thread.
unsafe impl Send for Notifier {}
// SAFETY: see above.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// # Safety
    ///
    /// `func` must be callable with `arg` from process context, for as long as
    /// the notifier lives.
    pub unsafe fn from_raw(func: unsafe extern "C" fn(*mut c_void, u32), arg: *mut c_void) -> Self {
        // INVARIANT: by the function's requirement.
        Self { func, arg }
    }

    /// Makes the call. May sleep.
    pub fn call(&self, event: u32) {
        // SAFETY: by the type invariant.
        unsafe { (self.func)(self.arg, event) };
    }
}

/// A piece of a message.
#[repr(transparent)]
pub struct Piece<'a>(raw::kvec, core::marker::PhantomData<&'a [u8]>);

impl<'a> Piece<'a> {
    /// The piece with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(
            raw::kvec {
                // Only read.
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            },
            core::marker::PhantomData,
        )
    }
}

/// A message in pieces: `struct kvec`s of a caller.
///
/// # Invariants
///
/// `vec` points to `nr` valid pieces of readable memory for `'a`.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    vec: *const raw::kvec,
    nr: usize,
    _memory: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// The message without bytes.
    pub const EMPTY: Self = Self {
        vec: core::ptr::null(),
        nr: 0,
        _memory: core::marker::PhantomData,
    };

    /// # Safety
    ///
    /// Unless `nr` is 0, `vec` must point to `nr` `struct kvec`s whose memory can
    /// be read for `'a`.
    pub unsafe fn from_raw(vec: *const c_void, nr: usize) -> Self {
        // INVARIANT: by the function's requirement.
        if vec.is_null() {
            Self::EMPTY
        } else {
            Self {
                vec: vec.cast(),
                nr,
                _memory: core::marker::PhantomData,
            }
        }
    }

    /// The pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        (0..self.nr).map(|i| {
            // SAFETY: `i` is less than `nr`; by the type invariant.
            let piece = unsafe { &*self.vec.add(i) };
            if piece.iov_base.is_null() {
                &[][..]
            } else {
                // SAFETY: by the type invariant.
                unsafe { core::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
            }
        })
    }

    /// A message of these pieces.
    pub fn new(pieces: &'a [Piece<'a>]) -> Self {
        // INVARIANT: a `Piece` is a transparent `kvec` of borrowed memory.
        Self {
            vec: pieces.as_ptr().cast(),
            nr: pieces.len(),
            _memory: core::marker::PhantomData,
        }
    }

    /// Bytes of all pieces; `None` if that is no length.
    pub fn size(&self) -> Option<usize> {
        self.pieces()
            .try_fold(0usize, |sum, piece| sum.checked_add(piece.len()))
    }
}
