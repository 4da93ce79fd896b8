// SPDX-License-Identifier: GPL-2.0

//! A place for a box, which is present or away.
//!
//! One word records this: the address of the box, with a *tag* in its low bits that tells the
//! purpose for which it is there. Taking the box out is one compare-exchange, which gives it by
//! value to the caller alone. Putting it back is a store. Another tag for a box that stays is one
//! compare-exchange, too.
//!
//! ```text
//!             take
//!   tag ----------------> away ----call----> called
//!    ^                     |                   |
//!    +--- put, park -------+                   |
//!    +--- put ---------------------------------+---- park refuses once ---> away
//! ```
//!
//! No operation waits. A task that needs the box while it is away can [call](Berth::call) for it.
//! The task that has the box notices the call when it wants to [park](Berth::park) the box.

use core::{
    marker::PhantomData,
    mem::align_of, //
};

use crate::{
    atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    boxed::KBox,
};

/// Mask of the tag, which is not 0.
const MASK: usize = 7;
/// The box is away.
const AWAY: usize = 0;
/// The box is away and was called for.
const CALLED: usize = MASK + 1;

/// A place for a box. Any context.
///
/// # Invariants
///
/// `word` is [`AWAY`] or [`CALLED`], which have no tag; or the address that [`KBox::into_raw`]
/// returned, with a tag. In that case the berth owns the box.
pub struct Berth<T> {
    word: Atomic<usize>,
    _owns: PhantomData<*mut T>,
}

// SAFETY: It owns a `KBox<T>` or nothing.
unsafe impl<T: Send> Send for Berth<T> {}
// SAFETY: The box is accessed only by the thread that has taken it out.
unsafe impl<T: Send> Sync for Berth<T> {}

impl<T> Berth<T> {
    /// A berth with `value` in it, tagged `TAG`: 1 to 7.
    pub fn new<const TAG: u8>(value: KBox<T>) -> Self {
        // INVARIANT: As in `put()`.
        Self {
            word: Atomic::<usize>::new(Self::word_of::<TAG>(value)),
            _owns: PhantomData,
        }
    }

    #[inline(always)]
    fn word_of<const TAG: u8>(value: KBox<T>) -> usize {
        const {
            assert!(align_of::<T>() > MASK);
            assert!(TAG != 0 && TAG as usize <= MASK);
        }
        KBox::into_raw(value).expose_provenance() | usize::from(TAG)
    }

    /// # Safety
    ///
    /// `word` must come from [`Self::word_of`] with `tag`, and the caller must own the box.
    #[inline(always)]
    unsafe fn box_of(word: usize, tag: usize) -> KBox<T> {
        // Subtracted instead of masked: the compiler knows more about a difference, which `take()`
        // needs, too.
        let address = word.wrapping_sub(tag);
        // SAFETY: By the safety requirements of this function, it is the address of a box.
        unsafe { core::hint::assert_unchecked(address != 0) };
        let raw = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: By the safety requirements of this function, `into_raw()` returned this address.
        unsafe { KBox::from_raw(raw) }
    }

    /// Takes the box out if its tag is `TAG`.
    #[inline(always)]
    pub fn take<const TAG: u8>(&self) -> Option<KBox<T>> {
        const {
            assert!(TAG != 0 && TAG as usize <= MASK);
        }
        let word = self.word.load(Relaxed);
        // That is, if it has another tag, or none.
        if word.wrapping_sub(usize::from(TAG)) & MASK != 0 {
            return None;
        }
        // `CALLED` has no tag, and neither has `AWAY`: the tag is at least 1, and at most `MASK`.
        // SAFETY: The word was found here, with that tag.
        unsafe { self.take_word(word, usize::from(TAG)) }
    }

    /// Takes the box out if it is present with any tag but `TAG`.
    pub fn take_unless<const TAG: u8>(&self) -> Option<KBox<T>> {
        let word = self.word.load(Relaxed);
        let tag = word & MASK;
        if tag == 0 || tag == usize::from(TAG) {
            return None;
        }
        // SAFETY: The word was found here, with that tag.
        unsafe { self.take_word(word, tag) }
    }

    /// Takes the box out if the word is still `word`.
    ///
    /// # Safety
    ///
    /// `word` must have been read from this berth, with the tag `tag`, which is not 0.
    #[inline(always)]
    unsafe fn take_word(&self, word: usize, tag: usize) -> Option<KBox<T>> {
        // Acquire pairs with the store that put the box here.
        if self.word.cmpxchg(word, AWAY, Acquire).is_err() {
            return None;
        }
        // SAFETY: By the invariant the berth owned the box, as the word had that tag, and this call
        // alone has taken it out.
        Some(unsafe { Self::box_of(word, tag) })
    }

    /// Changes the tag of the box from `FROM` to `TO`. Returns `false` if it has another tag, or is
    /// away. As if the box were taken out and put back, but no other task finds it away.
    #[inline(always)]
    pub fn retag<const FROM: u8, const TO: u8>(&self) -> bool {
        const {
            assert!(FROM != 0 && FROM as usize <= MASK);
            assert!(TO != 0 && TO as usize <= MASK);
        }
        let word = self.word.load(Relaxed);
        let untagged = word.wrapping_sub(usize::from(FROM));
        if untagged & MASK != 0 {
            return false;
        }
        // INVARIANT: The address stays, and the tag was not 0, and is not. Full: what was done to
        // the box is visible to the task that takes it, and so is what the caller did.
        self.word
            .cmpxchg(word, untagged | usize::from(TO), Full)
            .is_ok()
    }

    /// Puts the box here with the tag `TAG`. A box that is already here is leaked.
    #[inline(always)]
    pub fn put<const TAG: u8>(&self, value: KBox<T>) {
        // INVARIANT: `word_of()` gives the box away. Release pairs with the compare-exchange that
        // takes the box, so that all that was done to it is visible.
        self.word.store(Self::word_of::<TAG>(value), Release);
    }

    /// Puts the box here with the tag `TAG`, unless it was called for since it was taken.
    ///
    /// # Errors
    ///
    /// Returns the box if it was called for. The call then counts as answered, and what the caller
    /// did before it is visible.
    pub fn park<const TAG: u8>(&self, value: KBox<T>) -> Result<(), KBox<T>> {
        let word = Self::word_of::<TAG>(value);
        // INVARIANT: As in `put()`.
        if self.word.cmpxchg(AWAY, word, Release).is_ok() {
            return Ok(());
        }
        // Acquire pairs with the compare-exchange of the call.
        self.word.xchg(AWAY, Acquire);
        // SAFETY: The word was made above and was not stored, so the box is still this call's.
        Err(unsafe { Self::box_of(word, usize::from(TAG)) })
    }

    /// Calls for the box. Returns `false` if the box is not away, or was called for already.
    pub fn call(&self) -> bool {
        // Release: the task that has the box goes on after what the caller did.
        self.word.cmpxchg(AWAY, CALLED, Release).is_ok()
    }

    /// The tag of the box; `None` while it is away.
    pub fn tag(&self) -> Option<u8> {
        // CAST: Three bits.
        match (self.word.load(Relaxed) & MASK) as u8 {
            0 => None,
            tag => Some(tag),
        }
    }
}

impl<T> Drop for Berth<T> {
    fn drop(&mut self) {
        let word = self.word.load(Relaxed);
        if word & MASK != 0 {
            // SAFETY: By the invariant the berth owns the box; there is no other reference to the
            // berth.
            drop(unsafe { Self::box_of(word, word & MASK) });
        }
    }
}
