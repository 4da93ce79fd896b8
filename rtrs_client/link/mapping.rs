// SPDX-License-Identifier: GPL-2.0

//! Mappings of requests' data for the device of a link.
//!
//! The one place that vouches for when they begin and end, which types do not say: a device is done
//! with memory when its answer has come and what was sent is retired, or when its queue pair is
//! gone. What knows that is the state of the request; see `RequestState`.

use kernel::prelude::*;

use rtrs_bindings::{
    handoff::HandoffCell,
    ib::{
        Direction,
        Domain,
        MappedSg, //
    },
};

use crate::session::Io;

/// Data that is mapped for a request which was not posted. Dropping it undoes that.
pub(super) struct Fresh(Option<MappedSg>);

impl Fresh {
    /// Maps the data of `io` for `domain`. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn map(io: &Io, domain: &Domain, dir: Direction) -> Result<Self> {
        // SAFETY: whoever has an `Io` has been told to send it, so that it has not completed. It
        // is sent over one link at a time, and what another one had mapped was undone before it was
        // told to this one. The result is undone below, or kept in a `Mapping`, where it is undone
        // before the request is completed and while the link has its domain.
        unsafe { MappedSg::map(domain, io.sg, dir) }.map(|map| Self(Some(map)))
    }

    /// The mapped list.
    pub(super) fn sg(&self) -> Result<&MappedSg> {
        self.0.as_ref().ok_or(EINVAL)
    }

    /// Keeps it in `place` for whoever is told to undo it: it may be posted then.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody else is at it; it is undone then.
    pub(super) fn keep(mut self, place: &Mapping) -> Result {
        let mut kept = place.0.try_take().ok_or(EBUSY)?;

        *kept = self.0.take();
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(map) = self.0.take() {
            // SAFETY: nothing was posted: what is, is kept before.
            unsafe { map.unmap() };
        }
    }
}

/// The mapping of a request in flight, if it has data.
pub(super) struct Mapping(HandoffCell<Option<MappedSg>>);

impl Mapping {
    /// None.
    pub(super) fn none() -> Self {
        Self(HandoffCell::new(None))
    }

    /// Undoes it. For the owner of the request, as `RequestState` has it: who could not post it,
    /// who was told that nothing is outstanding, or who has destroyed its queue pair. Any context.
    pub(super) fn undo(&self) {
        if let Some(map) = self.0.try_take().and_then(|mut kept| kept.take()) {
            // SAFETY: the owner of a request is who knows that the device is done with it; nobody
            // posts what is not in flight.
            unsafe { map.unmap() };
        }
    }
}
