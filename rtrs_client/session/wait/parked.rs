// SPDX-License-Identifier: GPL-2.0

//! Takes requests that wait for a path out, and sends them or lets them fail.
//!
//! Locking and context: see [`super`].

use super::{
    Waiting,
    RETRY_MS, //
};
use crate::{
    atomic::Relaxed,
    request::{
        Turn,
        Unsent, //
    },
    session::Session,
    trace, //
};
use kernel::{
    sync::Arc,
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    errno,
    workqueue::DelayedWorkExt, //
};

/// Some of the parked requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// All. While there are requests that wait for [`BRIEF_MS`](super::BRIEF_MS) only, none but
    /// those.
    AllInOrder,
    /// Requests that wait for [`BRIEF_MS`](super::BRIEF_MS) only.
    Brief,
}

/// A message that has waited briefly, and was taken out to be sent or to fail.
struct BriefInHand<'a>(&'a Waiting);

impl Drop for BriefInHand<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.brief_in_hand = state.brief_in_hand.saturating_sub(1);
    }
}

impl Session {
    /// Whether there are messages that wait briefly, or were taken out and not sent yet. Any
    /// context.
    pub(in crate::session) fn has_brief(&self) -> bool {
        self.waiting.state.lock().has_brief()
    }

    /// Takes request `id` if it is parked and one of `which`. The caller owns it then.
    fn unpark(&self, id: u16, which: Which) -> Option<(Turn<'_>, Option<BriefInHand<'_>>)> {
        let in_hand = {
            let mut state = self.waiting.state.lock();
            let mark = self.mark(id)?;
            let brief = mark.brief.load(Relaxed);
            let has_turn = match which {
                Which::All => true,
                Which::AllInOrder => brief || !state.has_brief(),
                Which::Brief => brief,
            };
            if !mark.parked.load(Relaxed) || !has_turn {
                return None;
            }
            mark.parked.store(false, Relaxed);
            state.count = state.count.saturating_sub(1);
            if brief {
                state.brief = state.brief.saturating_sub(1);
                state.brief_in_hand = state.brief_in_hand.saturating_add(1);
            }
            // `then()`: the drop of a `BriefInHand` takes the lock, so none must be made in vain.
            brief.then(|| BriefInHand(&self.waiting))
        };
        Some((self.resume_turn(id)?, in_hand))
    }

    /// Calls `f` with the parked requests of `which`, until `f` returns false, those from `first`
    /// on before the others. `f` owns each request that it gets. Returns whether it got all.
    fn each_parked(
        &self,
        which: Which,
        first: u16,
        mut f: impl FnMut(u16, Turn<'_>) -> bool,
    ) -> bool {
        for id in Iterator::chain(first..self.depth(), 0..first) {
            if self.waiting.state.lock().count(which) == 0 {
                break;
            }
            if let Some((turn, _in_hand)) = self.unpark(id, which) {
                if !f(id, turn) {
                    return false;
                }
            }
        }
        true
    }

    /// Sends parked requests, as far as paths take them. Work item.
    pub(in crate::session) fn resume(self: &Arc<Self>) {
        // One more than a request's number at most.
        let first = u16::try_from(self.waiting.next.load(Relaxed)).unwrap_or(0);
        let mut send = |id, turn: Turn<'_>| {
            trace::resume(self, id, 0);
            let Err(turn) = self.issue_again(id, turn) else {
                return true;
            };
            match turn.unsent {
                Unsent::NoPath | Unsent::Full => {
                    self.park_or_fail(id, turn);
                    // It may be the fault of this request: its pages cannot be mapped for this
                    // device. Those behind it have their turn first.
                    self.waiting
                        .next
                        .store(u32::from(id).saturating_add(1), Relaxed);
                    false
                }
                e => {
                    self.complete(turn, e.error().to_errno());
                    true
                }
            }
        };
        // The message that closes a device is sent before one that opens it once more.
        if self.each_parked(Which::Brief, 0, &mut send)
            && self.each_parked(Which::AllInOrder, first, send)
        {
            self.resume_rest();
        }
    }

    /// Requests may have had to wait for messages that came, or that another task sends.
    fn resume_rest(self: &Arc<Self>) {
        let state = self.waiting.state.lock();
        if state.count > 0 && state.up > 0 && !state.closing {
            self.retry.mod_delayed(self, msecs_to_jiffies(RETRY_MS));
        }
    }

    /// Parks a request, or completes it with an error.
    pub(in crate::session) fn park_or_fail(self: &Arc<Self>, id: u16, turn: Turn<'_>) {
        if let Err((e, turn)) = self.park(id, turn) {
            self.complete(turn, e.to_errno());
        }
    }

    /// Completes all parked requests with an error.
    pub(in crate::session) fn fail_waiting(&self) {
        self.fail_parked(Which::All);
    }

    /// The same for some of them.
    pub(super) fn fail_parked(&self, which: Which) {
        let error = errno::ECONNABORTED.to_errno();
        self.each_parked(which, 0, |id, turn| {
            trace::resume(self, id, error);
            self.complete(turn, error);
            true
        });
    }
}
