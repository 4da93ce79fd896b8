// SPDX-License-Identifier: GPL-2.0

//! C callbacks and C user messages, as values that are safe to use.
//!
//! For C APIs that tell a user about events by a number, and that take messages as they are given to
//! `kernel_sendmsg()`. What the numbers and the bytes mean is not known here.
//!
//! Code that makes one from raw pointers must guarantee that they are valid; from then on they are
//! safe values.

use core::ffi::c_void;

use crate::raw;

/// A callback that can be called any number of times.
///
/// # Invariants
///
/// `func` may be called with `arg` from process context, by several threads at a time.
pub struct Notifier {
    func: unsafe extern "C" fn(*mut c_void, u32),
    arg: *mut c_void,
}

// SAFETY: By the invariant `func` may be called from any thread.
unsafe impl Send for Notifier {}
// SAFETY: See above.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// # Safety
    ///
    /// `func` must be callable with `arg` from process context, by several threads at a time, for
    /// as long as the notifier lives.
    pub unsafe fn from_raw(func: unsafe extern "C" fn(*mut c_void, u32), arg: *mut c_void) -> Self {
        // INVARIANT: By the safety requirements of this function, `func` may be called with `arg`.
        Self { func, arg }
    }

    /// Calls it. May sleep.
    pub fn call(&self, event: u32) {
        // SAFETY: By the type invariant `func` may be called with `arg`.
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
                // The bytes are only read.
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            },
            core::marker::PhantomData,
        )
    }
}

/// The memory of a piece.
///
/// # Safety
///
/// `piece` must be a valid `struct kvec`, and its memory, unless that is null, must be readable and
/// not be written to for `'a`, and have at most `isize::MAX` bytes.
#[inline(always)]
unsafe fn bytes<'a>(piece: *const raw::kvec) -> &'a [u8] {
    // SAFETY: By the safety requirements of this function, the piece is valid.
    let piece = unsafe { &*piece };
    if piece.iov_base.is_null() {
        return &[];
    }
    // SAFETY: By the safety requirements of this function, the memory is readable for `'a`, does
    // not change, and is not too long.
    unsafe { core::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
}

/// A message in pieces: `struct kvec`s of a caller.
///
/// # Invariants
///
/// `vec` points to `nr` pieces. For `'a` they, and their memory, are readable and are not written
/// to. No memory of a piece has more than `isize::MAX` bytes.
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
    /// Unless `nr` is 0, `vec` must point to an array of `nr` `struct kvec`s, aligned as such. Each
    /// must be null, or the start and the length of memory in one allocation, of at most
    /// `isize::MAX` bytes. For `'a` the array and all this memory must be readable, and nothing may
    /// write to them.
    pub unsafe fn from_raw(vec: *const c_void, nr: usize) -> Self {
        // INVARIANT: By the safety requirements of this function, `vec` points to `nr` such pieces.
        Self {
            vec: vec.cast(),
            nr,
            _memory: core::marker::PhantomData,
        }
    }

    /// The piece, if the message has exactly one.
    #[inline(always)]
    pub fn only(&self) -> Option<&'a [u8]> {
        match self.nr {
            // SAFETY: By the type invariant `vec` points to one piece, as `bytes()` needs it.
            1 => Some(unsafe { bytes(self.vec) }),
            _ => None,
        }
    }

    /// The pieces.
    #[inline(always)]
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        (0..self.nr).map(|i| {
            // SAFETY: `i` is less than `nr`, and by the type invariant there are `nr` pieces, as
            // `bytes()` needs them.
            unsafe { bytes(self.vec.add(i)) }
        })
    }

    /// A message of these pieces.
    pub fn new(pieces: &'a [Piece<'a>]) -> Self {
        // INVARIANT: A `Piece` is a transparent `kvec` of borrowed memory, and is borrowed itself.
        Self {
            vec: pieces.as_ptr().cast(),
            nr: pieces.len(),
            _memory: core::marker::PhantomData,
        }
    }

    /// The number of bytes of all pieces, at most `usize::MAX`.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.pieces()
            .fold(0usize, |sum, piece| sum.saturating_add(piece.len()))
    }
}
