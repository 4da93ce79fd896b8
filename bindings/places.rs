// SPDX-License-Identifier: GPL-2.0

//! A set of [`Place`]s, identified by number.
//!
//! A caller that gets a number is the holder of the [`Place`] with that number until it puts the
//! number back. The numbers are tags of a [`TagQueue`]. A tag is not stored anywhere: a place that
//! is not idle owns its tag, and the call that makes it idle returns the tag.

use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    place::{
        Left,
        Place, //
    },
    sbitmap::TagQueue, //
};

/// Aligned to a cache line, as neighbours are used by other CPUs.
#[repr(align(64))]
struct Aligned<T>(Place<T>);

/// A place for each of a number of tags.
///
/// # Invariants
///
/// There are as many places as tags. A place is idle while its tag is free, or was taken to close
/// the queue of tags; otherwise its tag belongs to the caller that is about to occupy it, to the
/// place itself, or to its [`Left`].
#[pin_data]
pub struct Places<T> {
    #[pin]
    tags: TagQueue,
    places: KVVec<Aligned<T>>,
}

impl<T> Places<T> {
    /// Creates one place for each value, with the memory of the tags on NUMA node `node` (negative:
    /// any). Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no values or too many, `ENOMEM`.
    pub fn new(values: KVVec<T>, node: i32) -> Result<impl PinInit<Self, Error>> {
        let mut places = KVVec::with_capacity(values.len(), GFP_KERNEL)?;
        for value in values {
            places.push(Aligned(Place::new(value)), GFP_KERNEL)?;
        }
        let depth = u32::try_from(places.len())?;
        // INVARIANT: All are idle, and no tag is taken.
        Ok(try_pin_init!(Self {
            tags <- TagQueue::new(depth, node),
            places,
        }? Error))
    }

    /// The number of places.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns place `number`, if it exists.
    #[inline(always)]
    pub fn at(&self, number: usize) -> Option<&Place<T>> {
        self.places.get(number).map(|place| &place.0)
    }

    /// As [`at`](Self::at), with a reference that keeps the places alive.
    pub fn keep(self: &Arc<Self>, number: usize) -> Option<Kept<T>> {
        let place = NonNull::from(self.at(number)?);
        // INVARIANT: `place` was found in `self`.
        Some(Kept {
            place,
            _places: self.clone(),
        })
    }

    /// Makes the caller the holder of an idle place, after `set` has changed its value, and returns
    /// its number. With `wait`, sleeps until a place is idle; otherwise works in any context, and
    /// returns `None` if no place is idle. Returns `None` when the places are
    /// [closed](Self::close_and_wait).
    #[inline(always)]
    pub fn get(&self, wait: bool, set: impl FnOnce(&mut T)) -> Option<usize> {
        let tag = match self.tags.try_get() {
            Some(tag) => tag,
            None if wait => self.tags.get()?,
            None => return None,
        };
        // CAST: `usize` has at least 32 bits.
        let number = tag as usize;
        // SAFETY: By the invariant there is a place for each tag. It is idle, as its tag was free,
        // and only the caller that has the tag occupies it.
        unsafe { self.places.get_unchecked(number).0.occupy(set) };
        Some(number)
    }

    /// Gives up place `number` for its holder; now, or when its value is back. Any context.
    #[inline(always)]
    pub fn put(&self, number: usize) {
        let Some(place) = self.at(number) else {
            return;
        };
        if place.leave().is_none() {
            return self.put_busy(number);
        }
        // SAFETY: The place is one of these, and this call alone has just made it idle, so that the
        // tag belongs to this call. CAST: A tag.
        unsafe { self.tags.put(number as u32) };
    }

    /// As [`put`](Self::put), for a place with a turn, or with a lent value.
    #[cold]
    #[inline(never)]
    fn put_busy(&self, number: usize) {
        if self.at(number).and_then(Place::give_up).is_some() {
            // SAFETY: As for `put()`.
            unsafe { self.tags.put(number as u32) };
        }
    }

    /// Returns the tag of a place that was given up while its value was lent. Any context.
    #[cold]
    #[inline(never)]
    pub fn put_left(&self, left: Left<'_, T>) {
        let ours = |place: &Aligned<T>| core::ptr::eq(&place.0, left.place());
        if let Some(number) = self.places.iter().position(ours) {
            // SAFETY: As for `put()`: `left` shows that one call alone made the place idle.
            unsafe { self.tags.put(number as u32) };
        }
    }

    /// Closes the places, so that no caller gets one any more, and sleeps until all are put back.
    /// What was done before they were put back is visible then.
    pub fn close_and_wait(&self) {
        self.tags.close_and_wait();
    }
}

/// One of [`Places`], which it keeps alive.
///
/// # Invariants
///
/// `place` is one of `_places`, which do not move.
pub struct Kept<T> {
    place: NonNull<Place<T>>,
    _places: Arc<Places<T>>,
}

// SAFETY: It is a counted reference to the places.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: As above; it lends `&Place<T>`.
unsafe impl<T: Send> Sync for Kept<T> {}

impl<T> Deref for Kept<T> {
    type Target = Place<T>;

    #[inline(always)]
    fn deref(&self) -> &Place<T> {
        // SAFETY: By the type invariant `place` is in `_places`, which `self` keeps alive.
        unsafe { self.place.as_ref() }
    }
}
