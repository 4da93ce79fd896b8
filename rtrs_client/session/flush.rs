// SPDX-License-Identifier: GPL-2.0

//! Flushes of RNBD's devices: which data are known to survive a power loss of the server.
//!
//! Writes are not tracked one by one: they are counted when they complete, for the latency
//! statistics. A flush of a device with a volatile cache notes how many writes, of all devices,
//! were complete before it. If the count is the same when the server is found to have forgotten the
//! session, then no data are lost: incomplete writes are sent again. Otherwise the session is not
//! continued, and the next flush of the device fails, which tells the user of the data.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    },
};
use rtrs_bindings::{
    callback::Message,
    errno,
    loan::{
        Answer,
        Inspector, //
    },
    ratelimit::pr_warn_ratelimited,
};
use rtrs_core::proto::DataDir;

use super::{
    restart::Restart,
    Ready,
    Session, //
};
use crate::{
    atomic::Relaxed,
    logic::{
        devices::{
            Flush,
            Written, //
        },
        rnbd, //
    },
    params,
    path::Path,
    request::{
        Connection,
        Turn, //
    },
};

/// Notes that a device was flushed.
struct Flushed {
    restart: Arc<Restart>,
    user_id: u32,
    written: Written,
}

impl Inspector for Flushed {
    fn inspect(self, _: &mut Answer<'_>, result: Option<i32>) -> i32 {
        if result == Some(0) {
            self.restart
                .with(|known| known.devices().flushed(self.user_id, self.written));
        }
        result.unwrap_or(0)
    }
}

impl Ready {
    /// The same as [`submit`](Self::submit) for a message of the service connection, or one without
    /// data. These messages tell which devices RNBD has open, and which it has flushed. Any
    /// context.
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit); `EIO` for a flush after writes that may be lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn submit_observed(
        &self,
        mut turn: Turn<'_>,
        dir: DataDir,
        message: Message<'_>,
    ) -> Result {
        let session = &self.session;
        let observed = match (turn.connection, dir) {
            (Connection::Admin, _) => session.observe(&mut turn, message),
            (_, DataDir::Read) => session.before_flush(&mut turn, message),
            _ => Ok(()),
        };
        if let Err(e) = observed {
            session.abandon(turn);
            return Err(e);
        }
        // The message that closes a device is sent before one that opens it once more.
        if turn.connection == Connection::Admin && session.has_brief() {
            return self.submit_behind(turn, dir, message);
        }
        self.submit(turn, dir, message)
    }
}

impl Session {
    /// Prepares a request, if it is a flush.
    ///
    /// # Errors
    ///
    /// `EIO` if acknowledged writes may be lost, `ENOMEM`.
    fn before_flush(&self, turn: &mut Turn<'_>, message: Message<'_>) -> Result {
        let Some(restart) = self.restart.as_ref() else {
            return Ok(());
        };
        let Some(rnbd::Message::Flush(user_id)) = rnbd::Message::parse(&self.head_of(message))
        else {
            return Ok(());
        };
        match restart.with(|known| known.devices().flush(user_id)) {
            Flush::Whatever => Ok(()),
            Flush::Fails => {
                pr_warn_ratelimited!(
                    "{}: a flush fails: what was written before the server was restarted may be lost\n",
                    self.name()
                );
                Err(errno::EIO)
            }
            Flush::Matters => {
                // Writes that are answered from now on may not be flushed, and are counted later.
                let written = self.written();
                turn.loan.inspect_by(Flushed {
                    restart: restart.clone(),
                    user_id,
                    written,
                })
            }
        }
    }

    /// Returns the first bytes of a message, as many as a request's has; none if it has another
    /// length.
    fn head_of(&self, message: Message<'_>) -> [u8; rnbd::IO_SIZE] {
        let mut buf = [0xff; rnbd::IO_SIZE];
        if message.size() != rnbd::IO_SIZE {
            return buf;
        }
        let mut at = 0usize;
        for piece in message.pieces() {
            // No overflow: the end is at most the sum.
            let end = at.wrapping_add(piece.len());
            if let Some(place) = buf.get_mut(at..end) {
                place.copy_from_slice(piece);
            }
            at = end;
        }
        buf
    }

    /// Returns the number of answered writes. A write is counted before its user is told. While a
    /// path is being removed the number may be too small: then too little counts as flushed. Any
    /// context.
    pub(super) fn written(&self) -> Written {
        let mut sum: Written = self.paths.written_by_gone.load(Acquire);
        self.for_each_path(|path| sum = sum.wrapping_add(path.stats.writes_answered()));
        sum
    }

    /// The same, exactly, when no write is counted any more; `None` if the number does not matter,
    /// because caches survive. May sleep; must not be called with `paths.lock` held.
    pub(super) fn written_at_the_end(&self) -> Option<Written> {
        if params::write_cache_survives() {
            return None;
        }
        let _guard = self.paths.lock.lock();
        Some(self.written())
    }

    /// A path with its counters is removed. `paths.lock` is held.
    pub(super) fn note_written(&self, path: &Path) {
        let gone = self.paths.written_by_gone.load(Relaxed);
        let sum = gone.wrapping_add(path.stats.writes_answered());
        self.paths.written_by_gone.store(sum, Release);
    }
}
