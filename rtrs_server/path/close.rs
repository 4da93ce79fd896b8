// SPDX-License-Identifier: GPL-2.0

//! The end of a path. Called by the owner task; all of it may sleep. None of it waits for requests
//! that the user has; draining a connection waits for the user to return from taking one.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

use rtrs_bindings::ratelimit::pr_info_ratelimited;

use super::{
    Deferred,
    Owner,
    Path, //
};
use crate::logic::{
    path_state::{
        CloseReason,
        ServerPathState, //
    },
    ring::Ring, //
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
            self.session().path_down(self, told);
        }
        self.has_dir.store(false, Release);
        if core::mem::take(&mut owner.claimed) {
            self.session().unclaim();
        }

        // What nobody is going to execute is not to hold up what its client has sent again over
        // another path, however long the next step takes. What was parked on another path's
        // operation is not parked any more.
        let none = || Ring::new(KVVec::new());
        let mut deferred = core::mem::replace(&mut *self.deferred.lock(), none());
        let mut unparked = core::mem::replace(&mut *self.unparked.lock(), none());
        self.give_up(&mut deferred);
        self.give_up(&mut unparked);
        if let Some(live) = &live {
            drop_parked(self, live.slots().len());
            live.give_up(self);
        }

        // 4. Connections: drained, destroyed. No handler of ours runs after this, so it waits for
        // the one that is in the user's `request()`, which may sleep for a full disk.
        drop(eps);
        let region = self.info.lock().region.take();
        drop(region);

        // 5. Operations that nobody works on, with keys and, as the last user of its memory, the
        // domain.
        drop(live);
        drop(deferred);
        drop(unparked);
        drop(domain);
        drop(shares);
        self.drained.store(true, Relaxed);
        self.end_handshake(owner);

        match before {
            ServerPathState::Connected => {
                pr_info_ratelimited!("{}: disconnected: {}\n", self.label(), reason.as_str())
            }
            _ => pr_info_ratelimited!("{}: handshake ended: {}\n", self.label(), reason.as_str()),
        }
    }
}

impl Path {
    /// Gives the chunks' words back of what is in the ring.
    fn give_up(&self, ring: &mut Deferred) {
        for _ in 0..ring.len() {
            let Some(mut op) = ring.pop() else { return };
            if op.take_busy() {
                self.session().end(op.buf_id(), self.incarnation());
            }
            // It was there before.
            let _ = ring.push(op);
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
