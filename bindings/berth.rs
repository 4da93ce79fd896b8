// SPDX-License-Identifier: GPL-2.0

//! A place for a box, which is there or away.
//!
//! One word says which: the address of the box, with a *tag* in its low bits that says what the
//! box is there for. Taking the box out is one compare-exchange, which gives it to the caller by
//! value, and to nobody else. Putting it back is a store.
//!
//! ```text
//!             take
//!   tag ----------------> away ----call----> called
//!    ^                     |                   |
//!    +--- put, park -------+                   |
//!    +--- put ---------------------------------+---- park refuses once ---> away
//! ```
//!
//! Nobody waits. Whoever needs the box while it is away can [call](Berth::call) for it, which is
//! seen by the one that wants to [park](Berth::park) it.

use core::{
    marker::PhantomData,
    mem::align_of, //
};

use crate::{
    atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    boxed::KBox,
};

/// The bits of the tag, which is not 0.
const MASK: usize = 7;
/// The box is away.
const AWAY: usize = 0;
/// The box is away, and somebody has called for it.
const CALLED: usize = MASK + 1;

/// A place for a box. Any context.
///
/// # Invariants
///
/// `word` is [`AWAY`] or [`CALLED`], which have no tag; or what [`KBox::into_raw`] returned, with a
/// tag. Then the box is the berth's.
pub struct Berth<T> {
    word: Atomic<usize>,
    _owns: PhantomData<*mut T>,
}

// SAFETY: It is a `KBox<T>`, or a number.
unsafe impl<T: Send> Send for Berth<T> {}
// SAFETY: The box is reached by the one that has taken it out.
unsafe impl<T: Send> Sync for Berth<T> {}

impl<T> Berth<T> {
    /// A place where `value` is, for what `TAG` says: 1 to 7.
    pub fn new<const TAG: u8>(value: KBox<T>) -> Self {
        // INVARIANT: As `put()`.
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
    /// `word` must come from [`Self::word_of`] with `tag`, and the box be the caller's.
    #[inline(always)]
    unsafe fn box_of(word: usize, tag: usize) -> KBox<T> {
        // Not masked: the compiler knows more of a difference.
        let address = word.wrapping_sub(tag);
        // SAFETY: By the function's requirement it is the address of a box.
        unsafe { core::hint::assert_unchecked(address != 0) };
        let raw = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: By the function's requirement this is what `into_raw()` returned.
        unsafe { KBox::from_raw(raw) }
    }

    /// Takes the box out, if it is there for `TAG`.
    #[inline(always)]
    pub fn take<const TAG: u8>(&self) -> Option<KBox<T>> {
        const {
            assert!(TAG != 0 && TAG as usize <= MASK);
        }
        let word = self.word.load(Relaxed);
        if word & MASK != usize::from(TAG) {
            return None;
        }
        // SAFETY: It was found here, with that tag.
        unsafe { self.take_word(word, usize::from(TAG)) }
    }

    /// Takes the box out, if it is there for anything but `TAG`.
    pub fn take_unless<const TAG: u8>(&self) -> Option<KBox<T>> {
        let word = self.word.load(Relaxed);
        let tag = word & MASK;
        if tag == 0 || tag == usize::from(TAG) {
            return None;
        }
        // SAFETY: It was found here, with that tag.
        unsafe { self.take_word(word, tag) }
    }

    /// Takes the box out that `word` says is there.
    ///
    /// # Safety
    ///
    /// `word` must have been found here, with the tag `tag`, which is not 0.
    #[inline(always)]
    unsafe fn take_word(&self, word: usize, tag: usize) -> Option<KBox<T>> {
        // Pairs with the store that has put it here.
        if self.word.cmpxchg(word, AWAY, Acquire).is_err() {
            return None;
        }
        // SAFETY: By the invariant it was the berth's, as the word had that tag, and this call alone
        // has taken it out.
        Some(unsafe { Self::box_of(word, tag) })
    }

    /// Puts the box here, for what `TAG` says. One that is here already is lost.
    #[inline(always)]
    pub fn put<const TAG: u8>(&self, value: KBox<T>) {
        // INVARIANT: The box is given away.
        // Pairs with the compare-exchange of who takes it: all that was done to it is seen.
        self.word.store(Self::word_of::<TAG>(value), Release);
    }

    /// Puts the box here, for what `TAG` says, unless somebody has called for it since it was taken.
    ///
    /// # Errors
    ///
    /// The box, if so. The call counts as answered.
    pub fn park<const TAG: u8>(&self, value: KBox<T>) -> Result<(), KBox<T>> {
        let word = Self::word_of::<TAG>(value);
        // INVARIANT: As in `put()`.
        if self.word.cmpxchg(AWAY, word, Release).is_ok() {
            return Ok(());
        }
        self.word.store(AWAY, Relaxed);
        // SAFETY: It was given away above, to nobody.
        Err(unsafe { Self::box_of(word, usize::from(TAG)) })
    }

    /// Calls for the box. `false` if it is not away, or was called for.
    pub fn call(&self) -> bool {
        // There is nothing that the caller hands over: the word alone says it.
        self.word.cmpxchg(AWAY, CALLED, Relaxed).is_ok()
    }

    /// What the box is here for; `None` while it is away.
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
            // SAFETY: By the invariant; there is no other reference to the berth.
            drop(unsafe { Self::box_of(word, word & MASK) });
        }
    }
}
