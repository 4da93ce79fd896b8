// SPDX-License-Identifier: GPL-2.0

//! The end of a path. The owner task calls these functions; all of them may sleep. They do not wait
//! for requests that the user has, or is about to take.

use kernel::sync::{
    atomic::Release,
    Arc, //
};

use rtrs_bindings::ratelimit::pr_info_caused_by;
use rtrs_core::proto::ProtoError;

use super::{
    Owner,
    Path, //
};
use crate::logic::path_state::{
    CloseReason,
    ServerPathState, //
};

/// A violation of the protocol.
pub(crate) enum Violation {
    /// A message that is not valid.
    Proto(ProtoError),
    /// A request for a chunk that has an unanswered request on this path.
    Busy,
    /// A message that must not come here.
    Unexpected(&'static str),
}

impl From<ProtoError> for Violation {
    fn from(e: ProtoError) -> Self {
        Self::Proto(e)
    }
}

impl Violation {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Proto(e) => e.as_str(),
            Self::Busy => "request for a chunk in use",
            Self::Unexpected(what) => what,
        }
    }
}

impl Path {
    /// Takes down everything except operations that the user is still working on. Those only have
    /// their memory and the session's state of their chunk left.
    pub(super) fn tear_down(
        self: &Arc<Self>,
        owner: &mut Owner,
        before: ServerPathState,
        reason: CloseReason,
    ) {
        // 1. Objects needed for posting cannot be found any more, and are unused after the grace
        // period.
        let active = self.active.replace(None).synchronize();
        let mut active = active.or_else(|| owner.staged.take());

        // 2. No connection comes any more. Existing ones stop posting, and their clients are told;
        // outstanding work requests are flushed during the next steps.
        let (mut eps, domain) = {
            let mut setup = self.conns.setup.lock();
            setup.closed = true;
            (core::mem::take(&mut setup.eps), setup.domain.take())
        };
        let shares = self.end_shares();
        for ep in active.iter().flat_map(|active| active.endpoints()) {
            ep.disconnect();
        }
        for ep in eps.iter().flatten() {
            ep.disconnect();
        }

        // 3. The directory is removed before anything that takes long: a client that is back
        // already waits for that.
        if let Some(dir) = owner.dir.take() {
            drop(dir);
            self.has_dir.store(false, Release);
            let told = core::mem::take(&mut owner.told);
            self.session.note_end(reason == CloseReason::Peer);
            self.session.path_down(self, told);
        }
        self.has_dir.store(false, Release);
        if core::mem::take(&mut owner.claimed) {
            self.session.unclaim();
        }

        // Operations that will not be executed must not hold up the copies that their client has
        // sent over another path, however long the next step takes. Requests that were parked here
        // because of another path's operation are not parked any more.
        if let Some(active) = &active {
            drop_parked(self, active.chunks().len());
            active.release_waiting();
        }

        // 4. Connections are drained and destroyed. Those of a handshake are here; those of a path
        // that was starting, or up, are dropped first in `active`. No handler of this module runs
        // after that. The user's `request()` may still run: it does not use the connection. All queue
        // pairs are destroyed before the first completion queue, so that one grace period does for all.
        for ep in eps.iter_mut().flatten() {
            ep.destroy_qp();
        }
        if let Some(active) = &mut active {
            active.destroy_qps();
        }
        drop(eps);
        let dma_pages = self.info.lock().dma_pages.take();
        drop(dma_pages);

        // 5. The rest: operations that are not being worked on, and keys. Then the domain, as the
        // last user of its memory.
        drop(active);
        drop(domain);
        drop(shares);
        self.drained.store(true, Release);
        self.end_handshake();

        match before {
            ServerPathState::Connected => {
                pr_info_caused_by!(
                    self.log_place(),
                    "{}: disconnected: {}\n",
                    self.label(),
                    reason.as_str()
                )
            }
            _ => pr_info_caused_by!(
                self.log_place(),
                "{}: handshake ended: {}\n",
                self.label(),
                reason.as_str()
            ),
        }
    }
}

fn drop_parked(path: &Path, chunks: usize) {
    for buf_id in 0..chunks {
        // CAST: Buffer ids have 16 bits.
        path.session.cancel_parked(buf_id as u16, path.incarnation);
    }
}
