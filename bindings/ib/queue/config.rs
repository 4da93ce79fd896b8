// SPDX-License-Identifier: GPL-2.0

//! The sizes of a queue pair, and how its completions are handled.

use crate::{
    raw,
    workqueue::Queue, //
};

/// The context in which completions are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollContext {
    /// In softirq: callbacks must not sleep.
    ///
    /// On PREEMPT_RT in a work item, as with [`PollContext::Workqueue`], where callbacks that do
    /// not sleep work as well. There a softirq is preempted by others on its processor, and
    /// irq_poll, which ib_core uses for polling, then handles the entry at the head of its list
    /// twice (`lib/irq_poll.c` relies on no other code taking it). The list gets corrupted with the
    /// first IO; seen on 7.3.4 with these modules and with mainline's RTRS.
    Softirq,
    /// In a high-priority, reclaim-safe work item.
    Workqueue,
    /// In the caller of [`QueuePair::poll`](super::QueuePair::poll).
    Direct,
}

impl PollContext {
    pub(super) fn as_raw(self) -> raw::ib_poll_context {
        match self {
            Self::Softirq if cfg!(CONFIG_PREEMPT_RT) => raw::ib_poll_context_IB_POLL_WORKQUEUE,
            Self::Softirq => raw::ib_poll_context_IB_POLL_SOFTIRQ,
            Self::Workqueue => raw::ib_poll_context_IB_POLL_WORKQUEUE,
            Self::Direct => raw::ib_poll_context_IB_POLL_DIRECT,
        }
    }
}

/// Sizes of a queue pair.
#[derive(Clone)]
pub struct QueueConfig {
    /// The most outstanding send work requests.
    pub send_wrs: u32,
    /// The most outstanding receive work requests.
    pub recv_wrs: u32,
    /// Scatter/gather elements of a send work request.
    pub send_sges: u32,
    /// Messages of flights, and bodies of answers, of up to so many bytes are copied to the work
    /// request, from where the device takes them without a look at their memory. Fewer, or none, if
    /// the device does not have that much room anyway: work requests are not made larger for it.
    pub inline_max: u32,
    /// Completion vector, modulo the number that the device has.
    pub comp_vector: u32,
    /// The context in which completions are handled.
    pub poll: PollContext,
    /// If not 0, so many bytes of the data of [replies](crate::ib::Reply) are a portion: it can be asked
    /// whether the last two [are under way](super::QueuePair::is_ahead). For each portion there is a
    /// completion. Those of answers with up to [`LARGE`](super::LARGE) bytes do not count.
    pub portion: u32,
    /// Number of send tokens: the completion of a signalled chain tells its token. May be 0.
    pub send_tokens: u32,
    /// Number of tokens of [invalidations](super::QueuePair::invalidate). May be 0.
    pub key_tokens: u32,
    /// Number of receive tokens, likewise.
    pub recv_tokens: u32,
    /// If not 0, each receive has a [`Buffer`](super::Buffer), and so many bytes behind it, a power of two from 64 to
    /// 32768. For handlers that [receive messages](crate::ib::Handler::RECEIVES_MESSAGES).
    pub recv_rest: u32,
    /// If not 0, data that go along with the message of a flight are sent to the peer together with that,
    /// if it has no more than so many bytes. The peer must have receives for as much data as the flights
    /// have room for.
    pub sends: u32,
    /// If set, sends have a completion queue of their own, which raises no interrupt as a rule: the queue
    /// is polled when the peer answers, and when the send queue has no room. A completion that comes later
    /// than the answer is found with the next answer, or announced by an event. This work queue runs the
    /// items that see to that, and must be one [in softirq](crate::workqueue::Options::SOFTIRQ). If the device has no
    /// completion queue left, sends and receives share one. Only with [`PollContext::Softirq`], and not
    /// with tokens of sends or of invalidations, the completions of which must be told at once.
    pub sent: Option<Queue>,
}
