// SPDX-License-Identifier: GPL-2.0

//! Decisions of a path's owner task. Only that task calls these functions; see [`super`].

use kernel::sync::{
    atomic::{
        Acquire,
        Release, //
    },
    Arc, //
};

use rtrs_bindings::{
    ratelimit::pr_warn_caused_by,
    time::{
        msecs_to_jiffies,
        now_ns,
        Jiffies, //
    },
    workqueue::DelayedWorkExt,
};
use rtrs_core::proto::{
    heartbeat::DEFAULT_INTERVAL_MS,
    SessionName, //
};

use super::{
    Owner,
    Path,
    Status,
    Violation,
    NS_PER_MS, //
};
use crate::{
    logic::{
        admission::{
            Claim,
            RETRY_MS,
            SIBLINGS_NS, //
        },
        path_state::{
            Action,
            CloseReason,
            Event,
            ServerPathState, //
        },
    },
    trace, //
};

impl Path {
    /// The owner task.
    pub(super) fn attend(self: &Arc<Self>) {
        let mut owner = self.owner.lock();

        owner.retry = None;
        while let Some(event) = self.next_event(&mut owner) {
            self.apply(&mut owner, event);
        }
        if let Some(delay) = self.next_delay(&owner) {
            self.owner_work.enqueue(self, delay);
        }
    }

    /// Returns the next event since the last look.
    fn next_event(self: &Arc<Self>, owner: &mut Owner) -> Option<Event> {
        let state = self.state();

        match state {
            ServerPathState::Closed(_) => return None,
            ServerPathState::Closing(_) => {
                return (!self.ops_out.load(Acquire)).then_some(Event::CloseDone);
            }
            _ => (),
        }
        if self.is_closing() {
            let reason = self.reason.copy().unwrap_or(CloseReason::ConnError);
            return Some(Event::Close(reason));
        }
        // Read before the connections are counted: an honest client asks after the last one. Not in
        // the condition below: the lock would be held for the code that follows, which may sleep.
        let name = self.info.lock().name;
        let all = self.has_all_cons();
        if state == ServerPathState::Handshaking && all {
            return Some(Event::AllAccepted);
        }
        if state.in_handshake() {
            if let Some(name) = name {
                return self.try_start(owner, state, &name);
            }
            return (now_ns() >= self.deadline).then_some(Event::Deadline);
        }
        if state == ServerPathState::Connected && now_ns() >= owner.next_tick {
            // Neither changes the state unless the peer is dead, which comes back as an event.
            self.tick(owner);
        }
        None
    }

    /// The info request is there. Nothing happens while another object is in the way: the deadline
    /// still counts then.
    fn try_start(
        self: &Arc<Self>,
        owner: &mut Owner,
        state: ServerPathState,
        name: &SessionName,
    ) -> Option<Event> {
        if state == ServerPathState::Handshaking {
            // A violation for the state machine too; here it is counted.
            self.violated(Violation::Unexpected("info request before all connections"));
            return Some(Event::InfoReceived);
        }
        let now = now_ns();
        let waited = now.saturating_sub(*owner.asked_for_name.get_or_insert(now));
        if !owner.claimed {
            let early = waited < SIBLINGS_NS;
            let claim = self.session.ctx.registry.claim(self, name, early);
            self.set_standing(claim.standing(waited));
            match claim {
                Claim::Granted => owner.claimed = true,
                Claim::Wait | Claim::WaitForAnswer | Claim::WaitForSiblings => {
                    owner.retry = claim.retry_ms(waited);
                }
                Claim::Refused => {
                    pr_warn_caused_by!(
                        self.log_place(),
                        "{}: name {} is in use\n",
                        self.label(),
                        name
                    );
                    return Some(Event::Close(CloseReason::Refused));
                }
            }
        }
        if owner.claimed {
            // If the user is being told of its end, the path would wait for that as well if it were
            // started, but with its chunks, and without a deadline.
            let claim = match self.session.is_ending() {
                true => Claim::Wait,
                false => Claim::Granted,
            };
            self.set_standing(claim.standing(waited));
            owner.retry = claim.retry_ms(waited);
            if owner.retry.is_none() {
                if !self.dir_in_the_way() && !self.starts_already() {
                    return Some(Event::InfoReceived);
                }
                owner.retry = Some(RETRY_MS);
            }
        }
        (now >= self.deadline).then_some(Event::Deadline)
    }

    /// Whether an earlier life of the path is about to have a directory.
    fn starts_already(&self) -> bool {
        let others = |p: &Path| {
            p.state() == ServerPathState::Starting
                && p.addrs == self.addrs
                && p.incarnation != self.incarnation
        };
        self.session.count(others) != 0
    }

    /// Whether an earlier life of the path still has its directory.
    pub(super) fn dir_in_the_way(&self) -> bool {
        let others =
            |p: &Path| p.has_dir() && p.addrs == self.addrs && p.incarnation != self.incarnation;
        self.session.count(others) != 0
    }

    fn next_delay(&self, owner: &Owner) -> Option<Jiffies> {
        let until = match (self.state(), owner.retry) {
            (ServerPathState::Closing(_) | ServerPathState::Closed(_), _) => return None,
            (_, Some(ms)) => return Some(msecs_to_jiffies(ms)),
            (ServerPathState::Connected, None) => owner.next_tick,
            (_, None) => self.deadline,
        };
        let ms = until.saturating_sub(now_ns()) / NS_PER_MS;

        // One millisecond more, so as not to be too early.
        Some(msecs_to_jiffies(
            u32::try_from(ms)
                .unwrap_or(DEFAULT_INTERVAL_MS)
                .saturating_add(1),
        ))
    }

    fn apply(self: &Arc<Self>, owner: &mut Owner, event: Event) {
        let (before, transition) = {
            let mut status = self.status.lock();
            let before = status.state;
            let transition = before.next(event);
            if before != transition.state {
                *status = Status::new(transition.state);
            }
            (before, transition)
        };
        if before != transition.state {
            trace::path_state(self, before, transition.state);
        }

        match transition.action {
            Action::None => (),
            Action::Prepare => match self.prepare(owner) {
                Ok(()) => self.apply(owner, Event::Ready),
                Err(reason) => self.close(reason),
            },
            Action::Serve => {
                if let Err(reason) = self.serve(owner) {
                    self.close(reason);
                }
            }
            Action::Close => {
                // If the state machine decided to close, the path is closed for all others, too.
                if let ServerPathState::Closing(reason) = transition.state {
                    self.reason.populate(reason);
                    self.closing.store(true, Release);
                    self.tear_down(owner, before, reason);
                }
            }
            Action::Release => self.session.remove(self),
        }
    }

    /// A heartbeat is due.
    fn tick(self: &Arc<Self>, owner: &mut Owner) {
        self.heartbeat(owner);
        owner.next_tick = now_ns().saturating_add(u64::from(DEFAULT_INTERVAL_MS) * NS_PER_MS);
    }
}
