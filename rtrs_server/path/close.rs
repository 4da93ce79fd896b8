// SPDX-License-Identifier: GPL-2.0

//! The end of a path. Called by the owner task; all of it may sleep. None of it waits for requests
//! that the user has, or is just taking.

use kernel::sync::{
    atomic::{
        Relaxed,
        Release, //
    },
    Arc, //
};

use rtrs_bindings::ratelimit::pr_info_caused_by;

use super::{
    Owner,
    Path, //
};
use crate::logic::path_state::{
    CloseReason,
    ServerPathState, //
};

impl Path {
    /// Takes down everything but operations that the user is still working on. Those end with
    /// nothing but their memory and the session's word for their chunk.
    pub(super) fn tear_down(
        self: &Arc<Self>,
        owner: &mut Owner,
        before: ServerPathState,
        reason: CloseReason,
    ) {
        // 1. Nobody finds what is needed for posting, and after the grace period nobody uses it.
        let live = self.live.replace(None).synchronize();
        let live = live.or_else(|| owner.staged.take());

        // 2. No connection comes any more. Those that are there stop posting, and their clients
        // are told; what is outstanding is flushed while the next steps go on.
        let (eps, domain, shares) = {
            let mut setup = self.setup.lock();
            setup.closed = true;
            (
                core::mem::take(&mut setup.eps),
                setup.domain.take(),
                (setup.cons.take(), setup.queues.take()),
            )
        };
        for ep in live.iter().flat_map(|live| live.endpoints()) {
            ep.disconnect();
        }
        for ep in eps.iter().flatten() {
            ep.disconnect();
        }

        // 3. The directory goes before anything that takes long: a client that is back already
        // waits for it.
        if let Some(dir) = owner.dir.take() {
            drop(dir);
            self.has_dir.store(false, Release);
            let told = core::mem::take(&mut owner.told);
            self.session().note_end(reason == CloseReason::Peer);
            self.session().path_down(self, told);
        }
        self.has_dir.store(false, Release);
        if core::mem::take(&mut owner.claimed) {
            self.session().unclaim();
        }

        // What nobody is going to execute is not to hold up what its client has sent again over
        // another path, however long the next step takes. What was parked on another path's
        // operation is not parked any more.
        if let Some(live) = &live {
            drop_parked(self, live.chunks().len());
            live.give_up();
        }

        // 4. Connections: drained, destroyed. Those of a handshake are here; those of a path that
        // was starting, or up, are what goes first of `live`. No handler of ours runs after that.
        // The user's `request()` may: its connection is nothing that it knows of.
        drop(eps);
        let region = self.info.lock().region.take();
        drop(region);

        // 5. The rest of it: operations that nobody works on, with keys. Then, as the last user of
        // its memory, the domain.
        drop(live);
        drop(domain);
        drop(shares);
        self.drained.store(true, Relaxed);
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
        // CAST: there are 16 bits of chunks.
        path.session()
            .cancel_parked(buf_id as u16, path.incarnation());
    }
}
