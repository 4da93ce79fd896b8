// SPDX-License-Identifier: GPL-2.0

//! A flight that is over, and the completions that end it.

use core::mem::{
    offset_of,
    ManuallyDrop, //
};

use super::{
    word::Own,
    Flight,
    What, //
};
use crate::{
    ib::{
        endpoint::{
            Endpoint,
            Handler, //
        },
        queue::Polled,
        wc::Wc, //
    },
    loan::Loan,
    raw, //
};

/// A flight that is over. Dropping it unmaps the data, and frees the flight for the next request.
#[must_use]
pub struct Landing<'f, H: Handler> {
    flight: &'f Flight<H>,
    result: i32,
}

impl<'f, H: Handler> Landing<'f, H> {
    /// Wraps a flight. The caller must have just made its word Landing.
    #[inline(always)]
    pub(super) fn new(flight: &'f Flight<H>, result: i32) -> Self {
        Self { flight, result }
    }

    /// The flight.
    #[inline(always)]
    pub fn flight(&self) -> &'f Flight<H> {
        self.flight
    }

    /// The result in the answer, 0 or a negative errno.
    #[inline(always)]
    pub fn result(&self) -> i32 {
        self.result
    }

    /// Unmaps the data, or copies received data to the loan on success, and gives `loan` back if it
    /// is the one that was borrowed. Frees the flight for the next request.
    #[inline(always)]
    pub fn give_back(self, loan: &mut Loan) {
        // Bypasses `drop()`, which is not the usual path.
        let mut this = ManuallyDrop::new(self);
        let flight = this.flight;
        if !loan.is_borrowed_by(flight.id()) {
            return this.land();
        }
        // SAFETY: This `Landing` owns the flight.
        if unsafe { (*flight.data.get()).what } == What::Back {
            if this.result == 0 {
                // SAFETY: This `Landing` owns the flight, its data is `Back`, and the flight has
                // borrowed the loan.
                unsafe { flight.take_out(loan) };
            }
            // Nothing is mapped.
            flight.word.land();
        } else {
            this.land();
        }
        loan.give_back();
    }

    #[inline(always)]
    fn land(&mut self) {
        let flight = self.flight;
        // SAFETY: This `Landing` owns the flight; all events that the flight waited for have
        // happened, see the documentation of `flight`. The data are as they were when it was
        // posted.
        unsafe { flight.unmap((*flight.data.get()).what) };
        self.flight.word.land();
    }
}

impl<H: Handler> Drop for Landing<'_, H> {
    #[inline(never)]
    fn drop(&mut self) {
        self.land();
    }
}

/// The work request that has completed: the send, if it retires no others; the send, if it does; the
/// invalidation, which does.
pub(super) const SENT: u8 = 0;
pub(super) const SENT_RETIRES: u8 = 1;
pub(super) const INVALIDATED: u8 = 2;

/// # Safety
///
/// `cq` is the CQ of a live [`Endpoint<H>`], `wc` one of its completions, of a work request of a
/// flight with this entry.
pub(super) unsafe extern "C" fn done<H: Handler, const WHICH: u8>(
    cq: *mut raw::ib_cq,
    wc: *mut raw::ib_wc,
) {
    let (offset, own) = match WHICH {
        SENT => (offset_of!(Flight<H>, sent), Own::Sent),
        SENT_RETIRES => {
            let second = size_of::<raw::ib_cqe>();
            (offset_of!(Flight<H>, sent) + second, Own::Sent)
        }
        _ => (offset_of!(Flight<H>, invalidated), Own::Invalidated),
    };
    let retires = WHICH != SENT;
    // SAFETY: The context of the CQ is the endpoint, which outlives the CQ. The caller passes a valid
    // completion with the entry of a flight; flights stay as long as a queue pair of the domain.
    let (ep, wc, flight) = unsafe {
        let cqe = (*wc).__bindgen_anon_1.wr_cqe;
        (
            &*(*cq).cq_context.cast::<Endpoint<H>>(),
            Wc::from_raw(wc),
            &*cqe.byte_sub(offset).cast::<Flight<H>>(),
        )
    };
    // SAFETY: This is one of the endpoint's completions.
    let qp = unsafe { ep.qp_of_completion() };
    if own == Own::Sent {
        qp.count_done();
    }
    // SAFETY: The caller passes a valid queue.
    if !qp.send_completed(ep, wc, unsafe { Polled::of(cq, wc) }, retires) {
        return ep.handler().send_done(ep, qp, None, wc);
    }
    if let Some(completed) = flight.word.completed(own) {
        qp.count_landed_sent(completed.expected);
        ep.handler()
            .landed(ep, Landing::new(flight, completed.result));
    }
    if retires {
        ep.handler().send_retired(ep, qp);
    }
}
