// SPDX-License-Identifier: GPL-2.0

//! Endpoints that have a queue pair.

use core::ops::Deref;
use kernel::prelude::*;

use super::{
    Endpoint,
    Handler, //
};
use crate::ib::queue::QueuePair;

/// An endpoint with its queue pair, which need not be asked for.
///
/// # Invariants
///
/// The queue pair was created.
pub struct Equipped<H: Handler>(Pin<KBox<Endpoint<H>>>);

impl<H: Handler> Equipped<H> {
    /// `ep` with its queue pair.
    ///
    /// # Errors
    ///
    /// The endpoint, if it has none.
    pub fn new(ep: Pin<KBox<Endpoint<H>>>) -> Result<Self, Pin<KBox<Endpoint<H>>>> {
        match ep.qp() {
            // INVARIANT: Just checked. An endpoint never loses its queue pair.
            Some(_) => Ok(Self(ep)),
            None => Err(ep),
        }
    }

    /// The queue pair.
    #[inline(always)]
    pub fn qp(&self) -> &QueuePair {
        // SAFETY: By the type invariant the queue pair was created.
        unsafe { self.0.qp.get_unchecked() }
    }

    /// See [`Endpoint::destroy_qp`].
    pub fn destroy_qp(&mut self) {
        self.0.as_mut().destroy_qp();
    }
}

impl<H: Handler> Deref for Equipped<H> {
    type Target = Endpoint<H>;

    #[inline(always)]
    fn deref(&self) -> &Endpoint<H> {
        &self.0
    }
}
