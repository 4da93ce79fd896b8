// SPDX-License-Identifier: GPL-2.0

//! Data that the user of a transport lends to it for the time of a request.
//!
//! A [`Loan`] is a scatter list, perhaps an empty one, and the call that gives it back. Whoever
//! makes one from raw pointers vouches for them; from then on it is an ordinary value. While a
//! [`Flight`](crate::ib::Flight) has it borrowed, the call cannot be made: a device may be at work
//! on the memory.

use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    ib::SgBuffer,
    raw, //
};

/// The data of a request, and the call that ends it.
///
/// # Invariants
///
/// Unless `len` is 0, as it is without a callback, `sgl` is a valid list of `nents` entries, at least
/// one and at most `i32::MAX`, of `len` bytes, with its memory, that nothing but the request uses until
/// the call is made or done without; and the invariants of [`Callback`] hold. With a callback, but
/// without a list, `nents` is 0. `lent`, which is only there with a callback, was lent for it, and
/// stays until its `func` or `forget` is called. A list that is borrowed is there, and does not change
/// meanwhile.
pub struct Loan {
    callback: Option<Callback>,
    sgl: *mut raw::scatterlist,
    nents: u32,
    len: usize,
    /// The flight that has it, by its address; 0 for none.
    borrower: usize,
    /// Whose list it is, of a user in Rust.
    lent: Option<NonNull<SgBuffer>>,
}

// SAFETY: Memory that is the request's alone, by the invariant, in whatever thread that is.
unsafe impl Send for Loan {}
// SAFETY: `&Loan` can only tell lengths.
unsafe impl Sync for Loan {}

/// A request of a user in Rust: its data, and what is told the result.
pub trait Request: Send + Sync + 'static {
    /// Where the data is; asked for once. It is the request's alone until that is
    /// done, or could not be sent.
    fn data(&self) -> Option<&SgBuffer>;

    /// It is done, with 0 or a negative errno; its data can be another one's.
    /// Context: softirq or process; must not sleep.
    fn complete(this: Arc<Self>, result: i32);
}

impl Loan {
    /// Of no request.
    // INVARIANT: Without a list.
    pub const NONE: Self = Self {
        callback: None,
        sgl: null_mut(),
        nents: 0,
        len: 0,
        borrower: 0,
        lent: None,
    };

    /// A loan of a user in C.
    ///
    /// # Safety
    ///
    /// `func` must be callable with `arg`, once, from softirq or process context, at any time until
    /// it was called. Unless `nents` is 0, `sgl` must be null, or a valid scatter list of at least
    /// `nents` entries with its pages, and stay so, not used for anything else, until then.
    #[inline(always)]
    pub unsafe fn from_raw(
        func: unsafe extern "C" fn(*mut c_void, c_int),
        arg: *mut c_void,
        sgl: *mut c_void,
        nents: u32,
    ) -> Self {
        /// # Safety
        ///
        /// None: does nothing.
        unsafe fn nothing(_: *mut c_void) {}

        let sgl = sgl.cast::<raw::scatterlist>();
        let len = if nents != 1 || sgl.is_null() {
            // SAFETY: By the function's requirement.
            unsafe { total(sgl, nents) }
        } else {
            // SAFETY: By the function's requirement.
            // CAST: `usize` has at least 32 bits.
            unsafe { (*sgl).length as usize }
        };
        let nents = if len == 0 { 0 } else { nents };
        // INVARIANT: By the function's requirement.
        Self {
            callback: Some(Callback {
                func,
                forget: nothing,
                arg,
            }),
            sgl,
            nents,
            len,
            borrower: 0,
            lent: None,
        }
    }

    /// The data of `request`, which is kept alive until `T::complete` is called with it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the data is another request's; this one is dropped then.
    pub fn of_request<T: Request>(request: Arc<T>) -> Result<Self> {
        /// # Safety
        ///
        /// `arg` must come from `Arc::<T>::into_raw`, and not be used again.
        unsafe extern "C" fn trampoline<T: Request>(arg: *mut c_void, result: c_int) {
            // SAFETY: By the function's requirement.
            T::complete(unsafe { Arc::from_raw(arg.cast::<T>()) }, result);
        }
        /// # Safety
        ///
        /// As for `trampoline`.
        unsafe fn forget<T: Request>(arg: *mut c_void) {
            // SAFETY: By the function's requirement.
            drop(unsafe { Arc::from_raw(arg.cast::<T>()) });
        }
        let data = request.data();
        let (sgl, nents) = match data {
            // SAFETY: The data is borrowed from `request`, which the callback keeps until it is made
            // or cancelled: only then, and before that, the data is given back.
            Some(data) => unsafe { data.lend() }?,
            None => (null_mut(), 0),
        };
        let len = data.map_or(0, SgBuffer::len);
        let nents = if len == 0 { 0 } else { nents };
        let lent = data.map(NonNull::from);
        // INVARIANT: The reference belongs to the callback; `T` is `Send`. The data was lent just
        // now, with a list of its own. It stays with the reference, which `func` and `forget` take.
        Ok(Self {
            callback: Some(Callback {
                func: trampoline::<T>,
                forget: forget::<T>,
                arg: Arc::into_raw(request).cast_mut().cast(),
            }),
            sgl,
            nents,
            len,
            borrower: 0,
            lent,
        })
    }

    /// Whether there is a request.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        self.callback.is_some()
    }

    /// Bytes of data.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no data.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries of the list; of a loan that has ended, those that it had.
    #[inline(always)]
    pub fn entries(&self) -> u32 {
        self.nents
    }

    /// The call that ends the request; the loan is none then. `None` if there is none, or a flight
    /// has it borrowed: a mistake of the caller, and then it is never made.
    #[inline(always)]
    pub fn end(&mut self) -> Option<Callback> {
        if self.borrower != 0 {
            still_borrowed();
            return None;
        }
        if self.lent.is_some() {
            self.give_list_back();
        }
        // INVARIANT: The list goes with the callback.
        self.len = 0;
        self.callback.take()
    }

    /// Another request may use the list.
    #[inline(never)]
    fn give_list_back(&mut self) {
        if let Some(lent) = self.lent.take() {
            // SAFETY: There by the type invariant, as the callback still is, and lent for this
            // request, which is over.
            unsafe { lent.as_ref().give_back() };
        }
    }

    /// The list.
    #[inline(always)]
    pub(crate) fn list(&self) -> Option<(*mut raw::scatterlist, u32)> {
        (!self.is_empty()).then_some((self.sgl, self.nents))
    }

    /// The list of a loan that is borrowed; of another one nothing in particular.
    #[inline(always)]
    pub(crate) fn borrowed_list(&self) -> (*mut raw::scatterlist, u32) {
        (self.sgl, self.nents)
    }

    /// Notes that the flight `id` has the list; `false` if one has it, or there is none.
    #[inline(always)]
    pub(crate) fn borrow_by(&mut self, id: usize) -> bool {
        if self.borrower != 0 || self.is_empty() {
            return false;
        }
        // INVARIANT: There is a list.
        self.borrower = id;
        true
    }

    /// Whether the flight `id` has the list.
    #[inline(always)]
    pub(crate) fn is_borrowed_by(&self, id: usize) -> bool {
        self.borrower == id
    }

    /// No flight uses the list any more. By the one that had it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        self.borrower = 0;
    }
}

/// Bytes of a list; 0 if there is none, or it has too many entries.
///
/// # Safety
///
/// Unless `nents` is 0, `sgl` must be null, or a valid list of at least `nents` entries.
#[inline(never)]
unsafe fn total(sgl: *mut raw::scatterlist, nents: u32) -> usize {
    // CAST: A constant.
    if sgl.is_null() || nents.wrapping_sub(1) >= i32::MAX as u32 {
        return 0;
    }
    // SAFETY: By the function's requirement.
    unsafe { raw::rtrs_helper_sg_total(sgl, nents) }
}

#[cold]
#[inline(never)]
fn still_borrowed() {
    kernel::pr_warn_once!("a request ends whose data is in flight: it is never told\n");
}

/// A call somebody waits for, made once. Nothing uses the request's data any more.
///
/// # Invariants
///
/// `func` may be called with `arg`, once, from any context.
#[must_use]
pub struct Callback {
    func: unsafe extern "C" fn(*mut c_void, c_int),
    /// What to do with `arg` if the call is never made.
    forget: unsafe fn(*mut c_void),
    arg: *mut c_void,
}

impl Callback {
    /// Makes the call.
    #[inline(always)]
    pub fn call(self, result: i32) {
        // SAFETY: By the type invariant; `self` is gone afterwards.
        unsafe { (self.func)(self.arg, result) };
    }

    /// Does without the call.
    pub fn cancel(self) {
        // SAFETY: By the type invariant; `self` is gone afterwards.
        unsafe { (self.forget)(self.arg) };
    }
}

/// Looks at the answer to a request before its user does.
pub trait Inspector: Send + 'static {
    /// The request is over, with 0 or a negative errno, or it was not sent (`None`), and then there
    /// is no answer. What this returns is the result that the user is told.
    ///
    /// Context: softirq or process; must not sleep.
    fn inspect(self, answer: &mut Answer<'_>, result: Option<i32>) -> i32;
}

/// What a request has brought: its data, from the beginning.
///
/// # Invariants
///
/// `sgl` is null, or as in those of [`Loan`], with `nents` and a callback.
pub struct Answer<'a> {
    sgl: *mut raw::scatterlist,
    nents: u32,
    _loan: core::marker::PhantomData<&'a mut Loan>,
}

impl Answer<'_> {
    /// Copies the beginning, as far as there is something; how many bytes.
    pub fn read(&self, buf: &mut [u8]) -> usize {
        if self.sgl.is_null() {
            return 0;
        }
        // SAFETY: By the type invariant; `buf` has so many bytes.
        unsafe { raw::sg_copy_to_buffer(self.sgl, self.nents, buf.as_mut_ptr().cast(), buf.len()) }
    }

    /// Replaces the beginning.
    pub fn write(&mut self, bytes: &[u8]) {
        if !self.sgl.is_null() {
            // SAFETY: By the type invariant; `bytes` are read only.
            unsafe {
                raw::sg_copy_from_buffer(self.sgl, self.nents, bytes.as_ptr().cast(), bytes.len())
            };
        }
    }
}

/// A request that somebody looks at before its user does.
struct Inspected<I> {
    by: I,
    callback: Callback,
    sgl: *mut raw::scatterlist,
    nents: u32,
}

impl<I: Inspector> Inspected<I> {
    /// # Safety
    ///
    /// `arg` must come from `KBox::<Self>::into_raw`, and not be used again; nothing else must use
    /// the list.
    unsafe fn finish(arg: *mut c_void, result: Option<i32>) -> (Callback, i32) {
        // SAFETY: By the function's requirement.
        let this = KBox::into_inner(unsafe { KBox::from_raw(arg.cast::<Self>()) });
        // INVARIANT: As those of the loan were when this was made; the call was not made yet.
        let mut answer = Answer {
            sgl: this.sgl,
            nents: this.nents,
            _loan: core::marker::PhantomData,
        };
        let result = this.by.inspect(&mut answer, result);
        (this.callback, result)
    }

    /// # Safety
    ///
    /// As for `finish`.
    unsafe extern "C" fn call(arg: *mut c_void, result: c_int) {
        // SAFETY: By the function's requirement.
        let (callback, result) = unsafe { Self::finish(arg, Some(result)) };
        callback.call(result);
    }

    /// # Safety
    ///
    /// As for `finish`.
    unsafe fn forget(arg: *mut c_void) {
        // SAFETY: By the function's requirement.
        let (callback, _) = unsafe { Self::finish(arg, None) };
        callback.cancel();
    }
}

impl Loan {
    /// Has `by` look at the answer first. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and then it does not; `EINVAL` if there is no request, or for one of
    /// [`of_request`](Self::of_request), whose list may be another one's when it is over.
    #[cold]
    pub fn inspect_by<I: Inspector>(&mut self, by: I) -> Result {
        if self.lent.is_some() {
            return Err(EINVAL);
        }
        let place = KBox::<Inspected<I>>::new_uninit(GFP_ATOMIC)?;
        let callback = self.callback.take().ok_or(EINVAL)?;
        let (sgl, nents) = self.list().unwrap_or((null_mut(), 0));
        let inspected = KBox::write(
            place,
            Inspected {
                by,
                callback,
                sgl,
                nents,
            },
        );
        // INVARIANT: The box belongs to the callback, and `I` is `Send`. The list stays until
        // `callback` is called, which the box does after it was looked at.
        self.callback = Some(Callback {
            func: Inspected::<I>::call,
            forget: Inspected::<I>::forget,
            arg: KBox::into_raw(inspected).cast(),
        });
        Ok(())
    }
}
