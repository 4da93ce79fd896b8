// SPDX-License-Identifier: GPL-2.0

//! The owner task of a path.
//!
//! # Context
//!
//! Work items: the owner task on the queue of owner tasks, its timers on the other one. They may
//! sleep, and memory reclaim may wait for them, so no allocation here may do IO. [`run`] never runs
//! twice at a time for one path.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta, //
    },
};
use rtrs_bindings::{
    errno,
    noio,
    ratelimit::{
        pr_info_ratelimited,
        pr_warn_ratelimited, //
    },
    time,
    workqueue::DelayedWorkExt, //
};

use super::{
    heartbeat::Watched,
    Failed,
    Owner,
    Path,
    PendingEvents, //
};
use crate::{
    atomic::Relaxed,
    link::{
        Link,
        Severed, //
    },
    logic::{
        backoff,
        fence::Fence,
        path_state::{
            Action,
            Event,
            Failure,
            PathMachine,
            Reply,
            State,
            Transition,
            UpDown, //
        },
        trial::Record, //
    },
    params,
    trace::{
        self,
        LinkChange, //
    },
};

/// Wait of a path that leaves the creation of the session to another path.
const GIVE_WAY: Delta = Delta::from_millis(50);

/// Interval at which it is checked whether requests that are held back will fail.
const FENCE_LOOK: Delta = Delta::from_millis(20);

/// Handles notes until no event is pending.
pub(super) fn run(path: &Arc<Path>) {
    noio::scope(|| {
        let mut owner = path.owner.lock();
        loop {
            let notes = core::mem::take(&mut *path.pending.lock());
            if !path.attend(&mut owner, notes) {
                break;
            }
        }
    });
}

/// The wait between attempts is over.
pub(super) fn timer_fired(path: &Arc<Path>) {
    let link = path.status(|s| s.machine.link());
    path.notify(|notes| notes.timer = Some(link));
}

/// The time for establishing the link is over; it may be up by now.
pub(super) fn deadline_passed(path: &Arc<Path>) {
    let link = path.status(|s| s.machine.link());
    path.notify(|notes| notes.deadline = Some(link));
}

impl Path {
    /// Handles the notes. Returns whether there were any.
    fn attend(self: &Arc<Self>, owner: &mut Owner, notes: PendingEvents) -> bool {
        let PendingEvents {
            service_up,
            all_up,
            info,
            failed,
            deadline,
            timer,
            device_gone,
            device_back,
            address_change,
            command,
        } = notes;
        let mut any = false;
        // Failures first: no step is taken on a link that is known to have failed.
        if let Some(failed) = failed {
            any = true;
            self.failed_as(owner, failed);
        }
        if let Some(link) = device_gone {
            any = true;
            if self.status(|s| s.machine.link()) == link {
                self.note_error(errno::ENODEV.to_errno(), "device removed");
            }
            self.step(owner, Event::DeviceGone(link));
        }
        if device_back {
            any = true;
            self.step(owner, Event::DeviceBack);
        }
        if address_change {
            any = true;
            self.step(owner, Event::AddressChange);
        }
        if let Some(event) = command {
            any = true;
            self.step(owner, event);
        }
        if let Some(link) = deadline {
            any = true;
            if self.is_connecting(link) {
                self.failed(
                    owner,
                    link,
                    errno::ETIMEDOUT.to_errno(),
                    "no answer in time",
                );
            }
        }
        if let Some(link) = timer {
            any = true;
            self.step(owner, Event::TimerFired(link));
        }
        if let Some(link) = service_up {
            any = true;
            self.advance(owner, link, |l| l.expand());
        }
        if let Some(link) = all_up {
            any = true;
            self.advance(owner, link, |l| l.ask_info());
        }
        if let Some((link, len)) = info {
            any = true;
            self.advance(owner, link, |l| l.finish(len));
            if self.is_connecting(link) {
                self.publish(owner, link);
            }
        }
        any
    }

    fn is_connecting(&self, link: u32) -> bool {
        self.status(|s| s.machine.state() == State::Connecting && s.machine.link() == link)
    }

    fn note_error(&self, errno: i32, why: &'static str) {
        self.status.lock().last_error = Some((errno, why));
    }

    fn failed(self: &Arc<Self>, owner: &mut Owner, link: u32, errno: i32, why: &'static str) {
        let failed = Failed {
            link,
            failure: Failure::of(errno),
            errno,
            why,
        };
        self.failed_as(owner, failed);
    }

    fn failed_as(self: &Arc<Self>, owner: &mut Owner, failed: Failed) {
        let Failed {
            link,
            failure,
            errno,
            why,
        } = failed;
        let (current, state) = self.status(|s| (s.machine.link(), s.machine.state()));
        if link != current || !matches!(state, State::Connecting | State::Connected) {
            return;
        }
        self.note_error(errno, why);
        pr_info_ratelimited!("{}: {}: {} ({})\n", &**self, state.as_str(), why, errno);
        let dropped = |l: &Link| l.was_dropped_with_sends(errno);
        let failure = match failure {
            Failure::Again
                if state == State::Connecting && owner.link.as_ref().is_some_and(dropped) =>
            {
                pr_info_ratelimited!("{}: the next attempt sends no writes\n", &**self);
                self.only_writes.store(true, Relaxed);
                Failure::WithSends
            }
            failure => failure,
        };
        if failure == Failure::Unknown {
            self.session.doubt_others(self);
        }
        if failure == Failure::GaveWay {
            // The other path gets its answer soon. An operator can wait for that, too.
            fsleep(GIVE_WAY);
        }
        let event = if state == State::Connecting {
            Event::ConnectFailed { link, failure }
        } else {
            Event::LinkError(link)
        };
        self.step(owner, event);
    }

    /// Takes the next step of establishing `link`.
    fn advance(
        self: &Arc<Self>,
        owner: &mut Owner,
        link: u32,
        step: impl FnOnce(&mut Link) -> Result,
    ) {
        if !self.is_connecting(link) {
            return;
        }
        let Some(l) = owner.link.as_mut() else { return };
        if let Err(e) = step(l) {
            self.failed(owner, link, e.to_errno(), "set-up");
        }
    }

    /// Publishes the link for the submitters.
    fn publish(self: &Arc<Self>, owner: &mut Owner, link: u32) {
        let Some(l) = owner.link.take() else { return };
        let session = self.session.clone();
        let (turn, usable) = session.take_turn(&l);
        if let Err(why) = usable {
            // No other path has to wait for the end of this link.
            drop(turn);
            // If the link has failed meanwhile, or its device is gone, a note is pending that says
            // why. Otherwise the owner task of this path, or of one that may wait for it, has
            // something more urgent to do.
            let noted = l.core.has_failed() || self.pending.lock().device_gone == Some(link);
            owner.link = Some(l);
            if !noted {
                let failed = Failed {
                    link,
                    failure: Failure::GaveWay,
                    errno: errno::ECONNABORTED.to_errno(),
                    why,
                };
                self.failed_as(owner, failed);
            }
            return;
        }
        match Watched::new(&l).and_then(|watched| Ok((watched, KBox::new(l, GFP_KERNEL)?))) {
            Ok((watched, l)) => {
                let last = core::mem::replace(&mut *self.heartbeat.lock(), watched);
                // Without the lock.
                drop(last);
                self.begin_trial(&mut owner.record);
                drop(self.active.replace(Some(l)));
                self.step(owner, Event::Established(link));
                self.look_at_port();
            }
            // The link was dropped with the attempt.
            Err(_) => self.failed(owner, link, ENOMEM.to_errno(), "set-up"),
        }
    }

    /// Feeds the state machine and carries out its actions, until no event follows.
    fn step(self: &Arc<Self>, owner: &mut Owner, event: Event) {
        let mut next = Some(event);
        let mut commanded = matches!(
            event,
            Event::Start | Event::UserReconnect | Event::UserDisconnect | Event::Remove
        );
        while let Some(event) = next.take() {
            let max = self.session.settings.max_reconnect_attempts();
            // No other task changes the machine.
            let before = self.status(|s| s.machine);
            let after = before.next(event, max);
            self.observe(event, &before, &after, max);
            let Transition {
                machine,
                action,
                reply,
                announce,
            } = after;
            {
                let mut status = self.status.lock();
                if before.state() != machine.state() {
                    status.since_ns = time::now_ns();
                    // Only a link that was up has requests of the user to collect.
                    status.collected = before.state() != State::Connected;
                }
                status.machine = machine;
            }
            if event == Event::UserReconnect && reply == Reply::Accepted {
                owner.record = Record::new();
            }
            // Other closed paths may be connected again, by an operator or when their link is back.
            if machine.is_incompatible() || machine.state() == State::Dead {
                self.session.fail_if_hopeless();
            }
            match announce {
                UpDown::None => {}
                UpDown::Up => self.came_up(owner),
                UpDown::Down => {
                    if let Event::LinkError(_) = event {
                        owner.record.lost(time::now_ns());
                    }
                    self.session.path_down();
                }
            }
            if commanded {
                // The waiting task sees the new state. The action may take long: a session that
                // ends commands all of its paths before it waits for one.
                self.status.lock().reply = Some(reply);
                commanded = false;
                self.changed.wake_all();
            }
            next = self.act(owner, action);
            self.changed.wake_all();
        }
    }

    /// Counts, notes and traces that `event` is about to change the path. Called before other tasks
    /// see the new state: a session that was opened because this path is up must not be told of
    /// that later, by a uevent.
    fn observe(
        self: &Arc<Self>,
        event: Event,
        before: &PathMachine,
        after: &Transition,
        max_attempts: i32,
    ) {
        let stats = &self.stats;

        match after.announce {
            UpDown::None => {}
            UpDown::Up => {
                stats.connected();
                self.session.note_path(self, true);
            }
            UpDown::Down => self.session.note_path(self, false),
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
            trace::link_change(self, change, before, max_attempts);
        }
    }

    fn came_up(self: &Arc<Self>, owner: &Owner) {
        self.deadline.cancel_sync();
        pr_info_ratelimited!("{}: connected\n", &**self);
        if self.is_on_trial() {
            pr_warn_ratelimited!(
                "{}: lost {} times soon after it was connected: a last resort for {} s\n",
                &**self,
                owner.record.losses(),
                self.trial_secs()
            );
        }
        self.arm_heartbeat();
        self.session.path_up();
    }

    /// Carries out an action; returns the event that follows at once.
    fn act(self: &Arc<Self>, owner: &mut Owner, action: Action) -> Option<Event> {
        match action {
            Action::None => None,
            Action::Connect(link) => {
                self.timer.cancel_sync();
                match Link::start(self, link) {
                    Ok(l) => {
                        owner.link = Some(l);
                        self.deadline
                            .mod_delayed(self, msecs_to_jiffies(params::connect_timeout_ms()));
                        None
                    }
                    Err(e) => {
                        self.note_error(e.to_errno(), "set-up");
                        let failure = Failure::Again;
                        Some(Event::ConnectFailed { link, failure })
                    }
                }
            }
            Action::TearDown(link) => {
                self.tear_down(owner);
                Some(Event::TornDown(link))
            }
            Action::ArmTimer { attempt, .. } => {
                let ms = backoff::delay_ms(
                    attempt,
                    u32::from(self.session.options.reconnect_delay_sec),
                    time::random_u32(),
                );
                // CAST: The wait is far below 2^32 milliseconds.
                self.timer.mod_delayed(self, msecs_to_jiffies(ms as u32));
                None
            }
            Action::ArmSoon(_) => {
                // CAST: As above.
                let ms = backoff::soon_ms(time::random_u32()) as u32;
                self.timer.mod_delayed(self, msecs_to_jiffies(ms));
                None
            }
            Action::CancelTimer | Action::Release => {
                self.timer.cancel_sync();
                self.deadline.cancel_sync();
                None
            }
        }
    }

    /// Ends the link, and sends its requests in flight over other paths. From here on no other task
    /// finds the link or uses it, and no request completes on it.
    fn tear_down(self: &Arc<Self>, owner: &mut Owner) {
        self.deadline.cancel_sync();
        let connecting = owner.link.take();
        let active = {
            let retired = self.active.replace(None);
            if retired.is_none() {
                None
            } else {
                self.heartbeat_work.cancel_sync();
                self.no_trial();
                retired.synchronize()
            }
        };
        let severed = [connecting, active.map(KBox::into_inner)].map(|link| {
            // A request that is still on its way, for example as a packet that waits for a
            // neighbour, must not arrive after a later one of the same chunk, or after a later
            // write to the same place.
            let severed = link?.sever();
            let may_send = self.hold_back(&severed);
            severed
                .core()
                .for_each_left(|id, turn, result| match result {
                    // The server had finished it.
                    Some(result) => self.session.complete(turn, result),
                    None if may_send => self.session.reissue(id, turn),
                    None => self.session.complete(turn, errno::ECONNABORTED.to_errno()),
                });
            Some(severed)
        });
        self.status.lock().collected = true;
        // The rest of the connections takes long to end; no request waits for that, nor another
        // path.
        drop(severed);
        self.end_creation(false);
    }

    /// Waits while requests of the link must not be sent again; see [`fence`](crate::logic::fence).
    /// Returns whether they may be sent then; if not, they fail.
    fn hold_back(&self, severed: &Severed) -> bool {
        let ms = params::copy_fence_ms();
        let Some(fence) = Fence::new(time::now_ns(), ms, severed.left()) else {
            return true;
        };
        if severed.core().orders_copies() {
            self.session.note_ordered(&fence);
            return true;
        }
        while !fence.is_over(time::now_ns()) {
            if self.session.fails_behind(&fence) {
                return false;
            }
            fsleep(FENCE_LOOK);
        }
        true
    }
}
