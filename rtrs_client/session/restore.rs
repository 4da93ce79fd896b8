// SPDX-License-Identifier: GPL-2.0

//! Opens RNBD's devices again, with a server that has forgotten the session.
//!
//! # Context
//!
//! The owner task of the path that found this out, with `recreate_lock` held. No path is up, and
//! the link is not published, so no other requests are sent. It ends early when the link fails, or
//! when there is an urgent note for one of the session's paths.

use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    callback::{
        Message,
        Piece, //
    },
    errno,
    ib::SgBuffer,
    loan::{
        Loan,
        Request, //
    },
    ratelimit::{
        pr_info_ratelimited,
        pr_warn_ratelimited, //
    },
    time,
    wait::Completion, //
};
use rtrs_core::proto::DataDir;

use super::{
    io::fill_in,
    restart::Restart,
    Session, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    link::Link,
    logic::{
        devices::Unlike,
        epoch::Epoch,
        listen::{
            Listener,
            Verdict, //
        },
        restore::{
            Event,
            State,
            Why,
            DEVICE_MS, //
        },
        rnbd::{
            self,
            Open,
            Opened,
            INFO_SIZE,
            OPENED_SIZE, //
        },
    }, //
};

/// Interval at which the link is checked, in milliseconds.
const LOOK_MS: u32 = 20;

/// Time limit for the server's answer, in milliseconds: a disk may have to spin up.
const ANSWER_MS: u64 = 30_000;

/// Pause before the next request for a device that was refused, in milliseconds.
const REST_MS: u32 = 200;

/// The same for a device that is waited for for long: the server's log has a line for each.
const LONG_REST_MS: u32 = 2_000;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server has all devices.
    Restored,
    /// The server does not have all of them, and RNBD must be told.
    Lost,
    /// The link cannot be used.
    LinkLost,
}

/// A message of this module.
#[pin_data]
struct Call {
    data: SgBuffer,
    result: Atomic<i32>,
    #[pin]
    done: Completion,
}

impl Request for Call {
    fn data(&self) -> Option<&SgBuffer> {
        Some(&self.data)
    }

    fn complete(this: Arc<Self>, result: i32) {
        this.result.store(result, Relaxed);
        this.done.complete_all();
    }
}

/// One attempt to open everything again.
struct Attempt<'a> {
    session: &'a Arc<Session>,
    restart: &'a Restart,
    link: &'a Link,
    /// The permit for the messages.
    id: u16,
    /// The device that is being opened.
    device: Option<(u32, Open)>,
    /// The time of the first refusal, in monotonic nanoseconds.
    refused_ns: Option<u64>,
    /// The log says that the device is waited for.
    said: bool,
    /// Whether the server is heard.
    listener: Cell<Listener>,
}

impl Session {
    /// Opens the devices again, as the server of `link` does not know the session. May sleep.
    pub(super) fn restore(self: &Arc<Self>, link: &Link) -> Outcome {
        let Some(restart) = self.restart.as_ref() else {
            return Outcome::Lost;
        };
        // Not `written()`: a number that is too small is another one than at the last flush.
        let written = self.written_at_the_end();
        let (usable, dirty, permit) = restart.with(|known| {
            let devices = known.devices();
            let dirty = written.and_then(|written| devices.dirty(written).map(|d| *d.open()));
            (known.is_restorable(), dirty, known.take_permit())
        });
        // If there was no permit to keep before, there may be one now.
        let permit = permit.or_else(|| if usable { self.spare_permit() } else { None });
        let outcome = match (usable, dirty, permit) {
            (false, ..) => Outcome::Lost,
            (_, Some(open), _) => {
                self.may_have_lost(&open);
                Outcome::Lost
            }
            (.., None) => {
                pr_warn_ratelimited!("{}: no permit to open devices again\n", self.name());
                Outcome::Lost
            }
            (.., Some(id)) => self.try_restore(restart, link, id),
        };
        if let (Some(id), Some(negotiated)) = (permit, self.negotiated.get()) {
            let spare = match !usable || self.is_closing() {
                true => Some(id),
                false => restart.with(|known| known.keep_permit(id)),
            };
            if let Some(id) = spare {
                negotiated.permits.put(usize::from(id));
            }
        }
        outcome
    }

    fn may_have_lost(&self, open: &Open) {
        pr_warn_ratelimited!(
            "{}: {} has a volatile write cache, and may have lost what it acknowledged\n",
            self.name(),
            core::str::from_utf8(open.name()).unwrap_or("?")
        );
    }

    fn try_restore(self: &Arc<Self>, restart: &Restart, link: &Link, id: u16) -> Outcome {
        let mut attempt = Attempt {
            session: self,
            restart,
            link,
            id,
            device: None,
            refused_ns: None,
            said: false,
            listener: Cell::new(Listener::new(time::now_ns())),
        };
        let mut state = State::Clearing;
        while !state.is_final() {
            let event = attempt.step(state);
            state = state.next(event);
            if let (
                State::Resting(_),
                Event::Refused {
                    errno, since_ms, ..
                },
            ) = (state, event)
            {
                attempt.waits(errno, since_ms);
            }
        }
        match state {
            State::Done => {
                // Links that have ended may have had answers, which are counted by now.
                let dirty = self.written_at_the_end().and_then(|written| {
                    restart.with(|known| known.devices().dirty(written).map(|d| *d.open()))
                });
                if let Some(open) = dirty {
                    self.may_have_lost(&open);
                    return Outcome::Lost;
                }
                self.restored(restart);
                let count = restart.with(|known| known.devices().count());
                pr_info_ratelimited!(
                    "{}: the server did not know the session any more: {} devices opened again\n",
                    self.name(),
                    count
                );
                Outcome::Restored
            }
            State::GivenUp(why) => {
                attempt.say(why);
                Outcome::Lost
            }
            _ => Outcome::LinkLost,
        }
    }
}

impl Attempt<'_> {
    /// Carries out the step of a state.
    fn step(&mut self, state: State) -> Event {
        match state {
            State::Clearing => self.clear(),
            State::Greeting => self.greet(),
            State::Opening(from) => self.open(from),
            State::Resting(_) => {
                let ms = if self.said { LONG_REST_MS } else { REST_MS };
                match self.rest(ms) {
                    true => Event::Rested,
                    false => Event::LinkLost,
                }
            }
            State::Done | State::GivenUp(_) | State::Abandoned => Event::LinkLost,
        }
    }

    /// Whether the link can be used, and no task waits for this one. Called about every [`LOOK_MS`]
    /// while the attempt waits.
    fn goes_on(&self) -> bool {
        self.listen();
        self.session.goes_on(self.link)
    }

    /// Fails the link if the server is silent. Mainline's servers are while their user opens a
    /// device.
    fn listen(&self) {
        let core = &self.link.core;
        if !core.orders_copies() {
            return;
        }
        let mut listener = self.listener.get();
        match listener.look(time::now_ns(), self.link.heard()) {
            Verdict::Wait => {}
            Verdict::Ask => self.link.ask(),
            Verdict::Silent => core.fail("silent before it was used", errno::ETIMEDOUT.to_errno()),
        }
        self.listener.set(listener);
    }

    /// Sleeps; returns whether to continue.
    fn rest(&self, ms: u32) -> bool {
        let end_ns = time::now_ns().saturating_add(u64::from(ms).saturating_mul(1_000_000));
        while self.goes_on() {
            if time::now_ns() >= end_ns {
                return true;
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(i64::from(LOOK_MS)));
        }
        false
    }

    /// Waits until the user's requests on other links are collected: no answer of the last server
    /// comes after this. The owner tasks of these links do not wait for this task. An earlier
    /// attempt may have left a message on its link, which has failed, but does not end yet, and was
    /// never up.
    fn clear(&self) -> Event {
        let place = self.session.negotiated.get();
        let place = place.and_then(|n| n.permits.at(usize::from(self.id)));
        loop {
            let mut clear = place.is_none_or(|place| place.is_held());
            self.session
                .for_each_path(|path| clear &= !path.is_ending());
            if clear {
                self.restart.with(|known| known.devices().begin_again());
                return Event::Clear;
            }
            if !self.rest(LOOK_MS) {
                return Event::LinkLost;
            }
        }
    }

    fn greet(&self) -> Event {
        let Some((info, version)) = self.restart.with(|known| known.info()) else {
            return Event::OtherVersion;
        };
        let mut answer = [0; INFO_SIZE];
        match self.call(info.bytes(), &mut answer) {
            Ok(0) if rnbd::version(&answer) == Some(version) => Event::Greeted,
            Ok(_) => Event::OtherVersion,
            Err(()) => Event::LinkLost,
        }
    }

    fn open(&mut self, from: u32) -> Event {
        let next = self
            .restart
            .with(|known| known.devices().next(from).map(|d| (d.user_id(), *d.open())));
        let Some((user_id, open)) = next else {
            return Event::NoneLeft;
        };
        if self.device.map(|(id, _)| id) != Some(user_id) {
            self.device = Some((user_id, open));
            self.refused_ns = None;
            self.said = false;
        }
        let mut answer = [0; OPENED_SIZE];
        match self.call(open.bytes(), &mut answer) {
            Err(()) => Event::LinkLost,
            Ok(0) => match Opened::parse(&answer) {
                None => Event::OtherVersion,
                Some(opened) => {
                    let result = self
                        .restart
                        .with(|known| known.devices().opened_again(user_id, &opened));
                    match result {
                        Ok(()) => Event::Opened(user_id),
                        Err(unlike) => Event::Unlike(unlike),
                    }
                }
            },
            Ok(errno) => {
                let now_ns = time::now_ns();
                let since_ns = *self.refused_ns.get_or_insert(now_ns);
                let since_ms = now_ns.saturating_sub(since_ns) / 1_000_000;
                Event::Refused {
                    errno,
                    since_ms,
                    late: self.session.sends_nothing_again(),
                }
            }
        }
    }

    /// Sends a message that has an answer of the length of `answer`, and waits for the answer.
    /// Returns the server's errno; `Err` if the link cannot be used any more.
    fn call(&self, message: &[u8], answer: &mut [u8]) -> Result<i32, ()> {
        match self.try_call(message, answer) {
            Ok(result) if self.goes_on() => Ok(result),
            Ok(_) => Err(()),
            Err(e) => {
                // If a task waits, nothing is wrong with the link.
                if self.goes_on() {
                    self.link.core.fail("opening devices again", e.to_errno());
                }
                Err(())
            }
        }
    }

    fn try_call(&self, message: &[u8], answer: &mut [u8]) -> Result<i32> {
        let data = SgBuffer::new([(0, answer.len())].into_iter())?;
        let call = Arc::pin_init(
            pin_init!(Call {
                data,
                result: Atomic::new(0),
                done <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        self.session.call_on(
            self.link,
            self.id,
            Message::new(&[Piece::new(message)]),
            Loan::of_request(call.clone())?,
        )?;
        let end_ns = time::now_ns().saturating_add(ANSWER_MS.saturating_mul(1_000_000));
        while call.done.wait_timeout(msecs_to_jiffies(LOOK_MS)).is_err() {
            // It is collected with the link.
            if !self.goes_on() {
                return Err(errno::ECONNABORTED);
            }
            if time::now_ns() >= end_ns {
                return Err(errno::ETIMEDOUT);
            }
        }
        call.data.read(answer)?;
        Ok(call.result.load(Relaxed))
    }

    /// The name of the device that is being opened.
    fn device_name(&self) -> &str {
        let device = self.device.as_ref().map(|(_, open)| open.name());
        device
            .and_then(|name| core::str::from_utf8(name).ok())
            .unwrap_or("?")
    }

    /// A refused device is waited for: logs it once, when that takes long.
    fn waits(&mut self, errno: i32, since_ms: u64) {
        if since_ms >= DEVICE_MS && !self.said {
            self.said = true;
            pr_warn_ratelimited!(
                "{}: {} cannot be opened yet, IO waits: the server says {}\n",
                self.session.name(),
                self.device_name(),
                errno
            );
        }
    }

    /// Logs a failure.
    fn say(&self, why: Why) {
        let name = self.session.name();
        let device = self.device_name();
        match why {
            Why::Version => {
                pr_warn_ratelimited!("{}: the server speaks another RNBD than before\n", name);
            }
            Why::Refused(errno) => {
                pr_warn_ratelimited!(
                    "{}: {} cannot be opened again: the server says {}\n",
                    name,
                    device,
                    errno
                );
            }
            Why::Unlike(Unlike::Device(difference)) => {
                pr_warn_ratelimited!(
                    "{}: {} is not what it was: it {}\n",
                    name,
                    device,
                    difference.as_str()
                );
            }
            Why::Unlike(Unlike::Number) => {
                pr_warn_ratelimited!("{}: {} has no number of its own\n", name, device);
            }
        }
    }
}

impl Session {
    /// Sends a message of this module on a link that is not published, with the kept permit `id`.
    fn call_on(&self, link: &Link, id: u16, message: Message<'_>, mut loan: Loan) -> Result {
        let negotiated = self.negotiated.get().ok_or(EINVAL)?;
        let place = negotiated.permits.at(usize::from(id)).ok_or(EINVAL)?;
        let Some(mut turn) = place.begin() else {
            // An earlier request of the permit is still on its link. Cannot happen, as its end is
            // waited for first.
            if let Some(callback) = loan.end() {
                callback.cancel();
            }
            return Err(EBUSY);
        };
        turn.loan = loan;
        turn.epoch = Epoch::OURS.to_word();
        let sent = match fill_in(&negotiated.room, &mut turn, DataDir::Read, message) {
            true => link.issue::<false>(turn),
            false => Err(turn),
        };
        // The code that lands it gives the place back to its holder, which is this task.
        sent.map_err(|turn| {
            self.abandon(turn);
            errno::ECONNABORTED
        })
    }
}
