// SPDX-License-Identifier: GPL-2.0

//! Observation of a session: events, and contents of files in sysfs and debugfs.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use rtrs_core::uevent::{
    Health,
    PathEvent, //
};

use super::{
    Announced,
    Session,
    PATHS_ROOM, //
};
use crate::{
    logic::{
        chunk_state::ChunkState,
        path_state::ServerPathState, //
    },
    path::Path, //
};

impl Session {
    /// A path for which [`Session::path_up`] succeeded admits IO: tells user space. May sleep.
    pub(crate) fn path_connected(&self, path: &Path) {
        let mut announced = self.announced.lock();

        announced.connected = announced.connected.saturating_add(1);
        let first = announced.connected == 1;
        self.send_event(&mut announced, path, true, first);
    }

    /// Must be called while the directory exists: the event is one of its device.
    pub(super) fn send_event(
        &self,
        announced: &mut Announced,
        path: &Path,
        up: bool,
        session_too: bool,
    ) {
        announced.number = announced.number.wrapping_add(1);
        let event = PathEvent {
            up,
            session_too,
            session: self.name(),
            path: &path.addrs,
            health: Health {
                up: announced.connected,
                paths: announced.shown,
            },
            number: announced.number,
        };
        if let Some(dir) = &announced.dir {
            // Best effort: without memory there is no event.
            let _ = event.send(|vars| dir.uevent(vars));
        }
    }

    /// Returns how many of the visible paths are connected now.
    pub(crate) fn health(&self) -> Health {
        let mut health = Health::default();

        for path in self.paths.lock().iter().filter(|path| path.has_dir()) {
            health.paths = health.paths.saturating_add(1);
            if path.state() == ServerPathState::Connected {
                health.up = health.up.saturating_add(1);
            }
        }
        health
    }

    /// All paths. May sleep.
    pub(crate) fn all_paths(&self) -> Result<KVec<Arc<Path>>> {
        let mut all = KVec::with_capacity(PATHS_ROOM, GFP_KERNEL)?;

        for path in self.paths.lock().iter() {
            // Does not fail: a session has no more paths.
            let _ = all.push_within_capacity(path.clone());
        }
        Ok(all)
    }

    /// Returns the bytes of memory that the session holds: memory of its paths, and states of
    /// its chunks.
    pub(crate) fn memory(&self) -> u64 {
        // CAST: `usize` has at most 64 bits.
        let state = size_of::<Arc<ChunkState>>() + ChunkState::MEMORY;
        let states = (self.chunk_count().saturating_mul(state)) as u64;
        let paths = self.paths.lock();

        paths
            .iter()
            .fold(states, |sum, path| sum.saturating_add(path.memory()))
    }

    /// The client broke the protocol.
    pub(crate) fn violation(&self) {
        self.violations.add(1, Relaxed);
    }

    /// How often the client broke the protocol.
    pub(crate) fn violations(&self) -> u64 {
        self.violations.load(Relaxed)
    }
}
