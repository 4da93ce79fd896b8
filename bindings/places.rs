// SPDX-License-Identifier: GPL-2.0

//! Places that are had by number.
//!
//! Who gets a number is the holder of the [`Place`] with that number until it is put back. The
//! numbers are tags of a [`TagQueue`], and a tag is not kept anywhere: a place that is not idle has
//! its tag, and the one that makes it idle returns it.

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

/// Neighbours belong to other CPUs.
#[repr(align(64))]
struct Aligned<T>(Place<T>);

/// A place for each of a number of tags.
///
/// # Invariants
///
/// There are as many places as tags. A place is idle while its tag is free; otherwise its tag
/// belongs to the one that is about to occupy it, to the place itself, or to its [`Left`].
#[pin_data]
pub struct Places<T> {
    #[pin]
    tags: TagQueue,
    places: KVVec<Aligned<T>>,
}

impl<T> Places<T> {
    /// One for each value, the memory of the tags on NUMA node `node` (negative: any). Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none or too many, `ENOMEM`.
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

    /// How many there are.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Place `number`, if there are so many.
    #[inline(always)]
    pub fn at(&self, number: usize) -> Option<&Place<T>> {
        self.places.get(number).map(|place| &place.0)
    }

    /// The same for somebody who keeps it.
    pub fn keep(self: &Arc<Self>, number: usize) -> Option<Kept<T>> {
        let place = NonNull::from(self.at(number)?);
        // INVARIANT: As was found.
        Some(Kept {
            place,
            _places: self.clone(),
        })
    }

    /// Makes the caller the holder of some place, with the value as `set` leaves it; returns its
    /// number. With `wait` as soon as one is idle, which sleeps; otherwise `None` if none is, and
    /// any context will do. `None` when they are [closed](Self::close_and_wait).
    #[inline(always)]
    pub fn get(&self, wait: bool, set: impl FnOnce(&mut T)) -> Option<usize> {
        let tag = match self.tags.try_get() {
            Some(tag) => tag,
            None if wait => self.tags.get()?,
            None => return None,
        };
        // CAST: `usize` has at least 32 bits.
        let number = tag as usize;
        // As many as there are tags.
        let place = self.at(number)?;
        // SAFETY: By the invariant the place is idle, and only who has the tag does this.
        unsafe { place.occupy(set) };
        Some(number)
    }

    /// The holder of place `number` gives it up; now, or when its value is back. Any context.
    #[inline(always)]
    pub fn put(&self, number: usize) {
        let Some(place) = self.at(number) else {
            return;
        };
        if place.leave().is_none() {
            return self.put_busy(number);
        }
        // SAFETY: The place is one of ours, and has just become idle by this call alone, so that
        // the tag is ours. CAST: A tag.
        unsafe { self.tags.put(number as u32) };
    }

    /// The same for a place that cannot be left just now.
    #[cold]
    #[inline(never)]
    fn put_busy(&self, number: usize) {
        if self.at(number).and_then(Place::give_up).is_some() {
            // SAFETY: As for `put()`.
            unsafe { self.tags.put(number as u32) };
        }
    }

    /// The place was given up while its value was lent. Any context.
    #[cold]
    #[inline(never)]
    pub fn put_left(&self, left: Left<'_, T>) {
        let ours = |place: &Aligned<T>| core::ptr::eq(&place.0, left.place());
        if let Some(number) = self.places.iter().position(ours) {
            // SAFETY: As for `put()`: that it became idle by one call alone is what `left` says.
            unsafe { self.tags.put(number as u32) };
        }
    }

    /// Nobody gets a place any more; sleeps until all are put back. What others did before is
    /// visible then.
    pub fn close_and_wait(&self) {
        self.tags.close_and_wait();
    }
}

/// One of [`Places`], which are kept for it.
///
/// # Invariants
///
/// `place` is one of `_places`, which do not move.
pub struct Kept<T> {
    place: NonNull<Place<T>>,
    _places: Arc<Places<T>>,
}

// SAFETY: A reference that is counted.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: As above; it lends `&Place<T>`.
unsafe impl<T: Send> Sync for Kept<T> {}

impl<T> Deref for Kept<T> {
    type Target = Place<T>;

    #[inline(always)]
    fn deref(&self) -> &Place<T> {
        // SAFETY: By the type invariant.
        unsafe { self.place.as_ref() }
    }
}
