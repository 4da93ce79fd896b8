// SPDX-License-Identifier: GPL-2.0

//! Data that the user of a transport lends to it for the duration of a request.
//!
//! A [`Loan`] is a scatter list, perhaps an empty one, and the callback that gives it back. Code
//! that makes a loan from raw pointers must guarantee that they are valid; from then on the loan is
//! a safe value. While a [`Flight`](crate::ib::Flight) borrows it, the callback cannot be called: a
//! device may be accessing the memory.

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

/// The data of a request, and the callback that ends it.
///
/// # Invariants
///
/// Unless `len` is 0, as it is without a callback, `sgl` is a valid list of `nents` entries, at
/// least one and at most `i32::MAX`. Only the request uses the list and its memory until the
/// callback is called or cancelled. The invariants of [`Callback`] hold. `lent` is only
/// set with a callback; it was lent for that callback, and stays valid until `func` or `forget` of
/// the callback is called. A borrowed list exists and does not change while it is borrowed.
pub struct Loan {
    callback: Option<Callback>,
    sgl: *mut raw::scatterlist,
    nents: u32,
    /// Number of bytes of the list, or what its user says of it, see [`Loan::len`]. No access to
    /// memory relies on it.
    len: usize,
    /// Address of the flight that borrows the list; 0 for none.
    borrower: usize,
    /// The buffer that the list belongs to, for a user in Rust.
    lent: Option<NonNull<SgBuffer>>,
}

// SAFETY: By the invariant the memory belongs to the request alone, on whichever thread the request
// is.
unsafe impl Send for Loan {}
// SAFETY: `&Loan` reads lengths, entries of the list and the data, all of which threads may do at a
// time. This crate writes to entries and data with `&mut Loan` only: when a flight borrows the list
// and maps it, and when a flight that is over gives it back.
unsafe impl Sync for Loan {}

/// A request of a user in Rust: its data, and the function that gets the result.
pub trait Request: Send + Sync + 'static {
    /// Returns the data; called once. Only the request may use the data until the request is done,
    /// or could not be sent.
    fn data(&self) -> Option<&SgBuffer>;

    /// Called when the request is done, with 0 or a negative errno; its data can be used for
    /// another request. Context: softirq or process; must not sleep.
    fn complete(this: Arc<Self>, result: i32);
}

impl Loan {
    /// The loan of no request.
    // INVARIANT: There is no list and no callback.
    pub const NONE: Self = Self {
        callback: None,
        sgl: null_mut(),
        nents: 0,
        len: 0,
        borrower: 0,
        lent: None,
    };

    /// A loan of a user in C. What the user `said` is the length of a list of several entries until
    /// it is [corrected](Self::correct): to count takes a look at each entry.
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
        said: usize,
    ) -> Self {
        /// # Safety
        ///
        /// None: the function does nothing.
        unsafe fn nothing(_: *mut c_void) {}

        let sgl = sgl.cast::<raw::scatterlist>();
        let len = match nents {
            // SAFETY: By the safety requirements of this function, there is one entry, or no list.
            // CAST: `usize` has at least 32 bits.
            1 => unsafe { sgl.as_ref() }.map_or(0, |entry| entry.length as usize),
            2..=MAX_ENTRIES if !sgl.is_null() && said != 0 => said,
            // SAFETY: By the safety requirements of this function, `sgl` is null or such a list.
            _ => unsafe { total(sgl, nents) },
        };
        // INVARIANT: By the safety requirements of this function, list and callback are valid until
        // the call.
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
    /// `EBUSY` if the data is lent to another request; `request` is dropped in that case.
    pub fn of_request<T: Request>(request: Arc<T>) -> Result<Self> {
        /// # Safety
        ///
        /// `arg` must come from `Arc::<T>::into_raw`, and not be used again.
        unsafe extern "C" fn trampoline<T: Request>(arg: *mut c_void, result: c_int) {
            // SAFETY: By the safety requirements of this function, `arg` is such a pointer.
            T::complete(unsafe { Arc::from_raw(arg.cast::<T>()) }, result);
        }
        /// # Safety
        ///
        /// As for `trampoline`.
        unsafe fn forget<T: Request>(arg: *mut c_void) {
            // SAFETY: By the safety requirements of this function, `arg` is such a pointer.
            drop(unsafe { Arc::from_raw(arg.cast::<T>()) });
        }
        let data = request.data();
        let (sgl, nents) = match data {
            // SAFETY: The data is part of `request`, which the callback keeps alive until it is
            // called or cancelled. The data is given back right before that.
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

    /// Whether the loan belongs to a request.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        self.callback.is_some()
    }

    /// Number of bytes of data. For a list of several entries of a user in C this is what the user
    /// says, until it is [corrected](Self::correct).
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes of the list, which it counts unless it is known.
    #[inline(never)]
    pub fn count(&self) -> usize {
        match self.list() {
            // SAFETY: By the type invariant `sgl` is such a list.
            Some((sgl, nents)) if self.lent.is_none() => unsafe { total(sgl, nents) },
            _ => self.len,
        }
    }

    /// Replaces the length that the user has said by the one that the list has, if that `suits`.
    /// Returns whether it does. The list is walked once.
    pub fn correct(&mut self, suits: impl FnOnce(usize) -> bool) -> bool {
        let len = self.count();
        let suits = suits(len);

        if suits {
            // INVARIANT: This is the length of the list; without a list it stays 0.
            self.len = len;
        }
        suits
    }

    /// Whether there is no data.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of entries of the list, as its user says; once the loan has ended, the number it had.
    #[inline(always)]
    pub fn entries(&self) -> u32 {
        self.nents
    }

    /// Ends the loan and returns the callback that ends the request. Returns `None` if there is no
    /// request, or if a flight borrows the list: that is a bug of the caller, and the callback is
    /// then never called.
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

    /// Gives the list back, so that another request may use it.
    #[inline(never)]
    fn give_list_back(&mut self) {
        if let Some(lent) = self.lent.take() {
            // SAFETY: By the type invariant `lent` is valid, as the callback still exists. It was
            // lent for this request, which is over.
            unsafe { lent.as_ref().give_back() };
        }
    }

    /// The list.
    #[inline(always)]
    pub(crate) fn list(&self) -> Option<(*mut raw::scatterlist, u32)> {
        (!self.is_empty()).then_some((self.sgl, self.nents))
    }

    /// The list of a loan that is borrowed. Meaningless for any other loan.
    #[inline(always)]
    pub(crate) fn borrowed_list(&self) -> (*mut raw::scatterlist, u32) {
        (self.sgl, self.nents)
    }

    /// Records that the flight `id` borrows the list; `false` if a flight borrows it already, or
    /// there is no list.
    #[inline(always)]
    pub(crate) fn borrow_by(&mut self, id: usize) -> bool {
        if self.borrower != 0 || self.is_empty() {
            return false;
        }
        // INVARIANT: There is a list.
        self.borrower = id;
        true
    }

    /// Whether the flight `id` borrows the list.
    #[inline(always)]
    pub(crate) fn is_borrowed_by(&self, id: usize) -> bool {
        self.borrower == id
    }

    /// Ends the borrow. Called by the flight that had the list.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        self.borrower = 0;
    }
}

/// The most entries of a list.
// CAST: A constant.
const MAX_ENTRIES: u32 = i32::MAX as u32;

/// Returns the number of bytes of a list; 0 if there is no list, or it has too many entries.
///
/// # Safety
///
/// Unless `nents` is 0, `sgl` must be null, or a valid list of at least `nents` entries.
#[inline(never)]
unsafe fn total(sgl: *mut raw::scatterlist, nents: u32) -> usize {
    if sgl.is_null() || nents.wrapping_sub(1) >= MAX_ENTRIES {
        return 0;
    }
    // SAFETY: By the safety requirements of this function, `sgl` is such a list. It has at least
    // one entry, see above.
    unsafe { raw::rtrs_helper_sg_total(sgl, nents) }
}

#[cold]
#[inline(never)]
fn still_borrowed() {
    kernel::pr_warn_once!("a request ends while its data is in flight: its user is never told\n");
}

/// The callback that ends a request, called at most once. Nothing uses the request's data any more.
///
/// # Invariants
///
/// `func` may be called with `arg`, once, from softirq or process context.
#[must_use]
pub struct Callback {
    func: unsafe extern "C" fn(*mut c_void, c_int),
    /// Releases `arg` if `func` is never called.
    forget: unsafe fn(*mut c_void),
    arg: *mut c_void,
}

impl Callback {
    /// Calls it.
    #[inline(always)]
    pub fn call(self, result: i32) {
        // SAFETY: By the type invariant the call is allowed once; `self` is gone afterwards.
        unsafe { (self.func)(self.arg, result) };
    }

    /// Releases it without the call.
    pub fn cancel(self) {
        // SAFETY: By the type invariant the call is allowed once; `self` is gone afterwards.
        unsafe { (self.forget)(self.arg) };
    }
}

/// Inspects the answer to a request before its user gets it.
pub trait Inspector: Send + 'static {
    /// Called when the request is over, with 0 or a negative errno, or was not sent (`None`), in
    /// which case there is no answer. The returned value is the result that the user gets.
    ///
    /// Context: softirq or process; must not sleep.
    fn inspect(self, answer: &mut Answer<'_>, result: Option<i32>) -> i32;
}

/// The data that a request has returned.
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
    /// Copies the beginning of the data into `buf`. Returns the number of bytes copied.
    pub fn read(&self, buf: &mut [u8]) -> usize {
        if self.sgl.is_null() {
            return 0;
        }
        // SAFETY: By the type invariant the list is valid; `buf` has `buf.len()` bytes.
        unsafe { raw::sg_copy_to_buffer(self.sgl, self.nents, buf.as_mut_ptr().cast(), buf.len()) }
    }

    /// Overwrites the beginning of the data.
    pub fn write(&mut self, bytes: &[u8]) {
        if !self.sgl.is_null() {
            // SAFETY: By the type invariant the list is valid; `bytes` are only read.
            unsafe {
                raw::sg_copy_from_buffer(self.sgl, self.nents, bytes.as_ptr().cast(), bytes.len())
            };
        }
    }
}

/// A request with an [`Inspector`].
struct Inspected<I> {
    by: I,
    callback: Callback,
    sgl: *mut raw::scatterlist,
    nents: u32,
}

impl<I: Inspector> Inspected<I> {
    /// # Safety
    ///
    /// `arg` must come from `KBox::<Self>::into_raw`, and must not be used again; nothing else may
    /// use the list.
    unsafe fn finish(arg: *mut c_void, result: Option<i32>) -> (Callback, i32) {
        // SAFETY: By the safety requirements of this function, `arg` is such a pointer.
        let this = KBox::into_inner(unsafe { KBox::from_raw(arg.cast::<Self>()) });
        // INVARIANT: `sgl` and `nents` are those of the loan, with its invariants; the callback was
        // not called yet.
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
        // SAFETY: By the safety requirements of this function, `arg` is as `finish` needs it.
        let (callback, result) = unsafe { Self::finish(arg, Some(result)) };
        callback.call(result);
    }

    /// # Safety
    ///
    /// As for `finish`.
    unsafe fn forget(arg: *mut c_void) {
        // SAFETY: By the safety requirements of this function, `arg` is as `finish` needs it.
        let (callback, _) = unsafe { Self::finish(arg, None) };
        callback.cancel();
    }
}

impl Loan {
    /// Lets `by` inspect the answer first. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, without an effect; `EINVAL` if there is no request, or for one of
    /// [`of_request`](Self::of_request), as its list may belong to another request when it is over.
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
        // INVARIANT: The box belongs to the callback, and `I` is `Send`. The list stays valid until
        // `callback` is called, which `Inspected` does after the inspection.
        self.callback = Some(Callback {
            func: Inspected::<I>::call,
            forget: Inspected::<I>::forget,
            arg: KBox::into_raw(inspected).cast(),
        });
        Ok(())
    }
}
