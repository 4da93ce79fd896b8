// SPDX-License-Identifier: GPL-2.0

//! Observation of a path's life: counts, trace events, uevents.

use kernel::sync::Arc;

use super::Path;
use crate::{
    logic::path_state::{
        Action,
        Event,
        Failure,
        Notice,
        State, //
    },
    trace::{
        self,
        LinkChange, //
    },
};

impl Path {
    /// Records that `event` is about to change the path. Owner task.
    pub(super) fn observe(self: &Arc<Self>, event: Event, max_attempts: i32) {
        let before = self.status(|s| s.machine);
        // This only computes a value: the path does not change yet.
        let after = before.next(event, max_attempts);
        let stats = self.stats();

        match after.notice {
            Notice::None => {}
            Notice::Up => {
                stats.connected();
                self.session.note_path(self, true);
            }
            Notice::Down => self.session.note_path(self, false),
        }
        let (connects, _) = stats.reconnects();
        if before.state() == State::Connecting
            && matches!(
                event,
                Event::ConnectFailed {
                    failure: Failure::Again | Failure::Final,
                    ..
                }
            )
            && after.machine.state() != State::Connecting
            && connects >= 0
        {
            stats.reconnect_failed();
        }

        if before.state() != after.machine.state() {
            trace::path_state(self, before.state(), after.machine.state());
        }
        let change = match (after.action, event) {
            (Action::Connect(_), Event::Start) => None,
            (Action::Connect(_), _) => Some(LinkChange::Reconnect),
            (
                Action::TearDown(_),
                Event::LinkError(_) | Event::ConnectFailed { .. } | Event::DeviceGone(_),
            ) => Some(LinkChange::Error),
            (Action::TearDown(_), _) => Some(LinkChange::Close),
            _ => None,
        };
        if let Some(change) = change {
            trace::link_change(self, change, &before, max_attempts);
        }
    }
}
