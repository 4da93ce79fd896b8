// SPDX-License-Identifier: GPL-2.0

//! Knows which devices RNBD has open in a session, so that they can be opened again when the server
//! has forgotten the session.
//!
//! The design: `Documentation/restart.rst`. RNBD's messages of the service connection are inspected
//! on their way out and in ([`Session::observe`]). Those of the other connections are inspected
//! only if the server's numbers of the devices differ from RNBD's, or if a request has to be sent
//! to a server that was restarted since it was made ([`Session::translate`]).
//!
//! # Locking
//!
//! `known` is a spinlock, interrupts off, innermost. `ids` has the same numbers for readers without
//! the lock: a number is read after the session's epoch, and sent only if that has not changed.

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
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    ratelimit::pr_warn_ratelimited,
    rcu, //
};
use rtrs_core::proto::SessionName;

use super::Session;
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::{
        devices::{
            Device,
            Devices,
            Written,
            MAX_DEVICES,
            MAX_IDS,
            NO_ID, //
        },
        epoch::Epoch,
        link_events::LinkEvent,
        rnbd::{
            self,
            Info,
            Open,
            Opened,
            INFO_SIZE,
            OPENED_SIZE,
            OPEN_SIZE, //
        },
    },
    request::{
        Connection,
        Io,
        Turn, //
    },
};

/// The kind of user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Not known yet.
    Unknown,
    /// RNBD, as far as the messages show.
    Rnbd,
    /// The same, but its devices are not known any more: there are more than there is room for, or
    /// the server's answers are not those of RNBD.
    RnbdUntracked,
    /// Another user.
    Other,
}

/// State of the user.
pub(super) struct Known {
    user: User,
    /// The message that began the session, and the version that the server answered.
    info: Option<(Info, u8)>,
    devices: KVVec<Device>,
    /// A permit that is kept: waiting requests may have all others.
    permit: Option<u16>,
}

impl Known {
    pub(super) fn devices(&mut self) -> Devices<'_> {
        Devices(&mut self.devices)
    }

    pub(super) fn info(&self) -> Option<(Info, u8)> {
        self.info
    }

    pub(super) fn take_permit(&mut self) -> Option<u16> {
        self.permit.take()
    }

    /// Keeps a permit. Returns it if one is kept already.
    pub(super) fn keep_permit(&mut self, id: u16) -> Option<u16> {
        if self.permit.is_some() {
            return Some(id);
        }
        self.permit = Some(id);
        None
    }

    /// Whether the user's state can be opened again.
    pub(super) fn is_restorable(&self) -> bool {
        self.user == User::Rnbd && self.info.is_some()
    }
}

/// The state of a session that depends on its user.
#[pin_data]
pub(super) struct Restart {
    name: SessionName,
    /// The server's number of each device, by the user's.
    ids: KVVec<Atomic<u32>>,
    /// Whether these differ from the user's.
    shifted: Atomic<bool>,
    #[pin]
    known: SpinLockIrq<Known>,
}

impl Restart {
    pub(super) fn new(name: SessionName) -> Result<Arc<Self>> {
        let mut ids = KVVec::with_capacity(MAX_IDS, GFP_KERNEL)?;
        for _ in 0..MAX_IDS {
            ids.push(Atomic::new(NO_ID), GFP_KERNEL)?;
        }
        let mut devices = KVVec::with_capacity(MAX_DEVICES, GFP_KERNEL)?;
        devices.extend_with(MAX_DEVICES, Device::FREE, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                ids,
                shifted: Atomic::new(false),
                known <- new_spinlock_irq!(
                    Known {
                        user: User::Unknown,
                        info: None,
                        devices,
                        permit: None,
                    },
                    "rtrs_restart"
                ),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Known) -> R) -> R {
        f(&mut self.known.lock())
    }

    /// Stops opening devices again, as the user is `now` another one.
    fn disable(&self, now: User, why: &'static str) {
        let was = self.with(|known| {
            let was = known.user;
            if was != User::Other {
                known.user = now;
            }
            was
        });
        if was == User::Rnbd {
            pr_warn_ratelimited!(
                "{}: {}: devices will not be opened again if the server is restarted\n",
                &self.name,
                why
            );
        }
    }

    /// Changes the devices, and updates `ids`.
    fn change<R>(&self, f: impl FnOnce(&mut Known) -> R) -> R {
        let mut known = self.known.lock();
        let result = f(&mut known);
        let mut ids = [NO_ID; MAX_IDS];
        known.devices().fill_in(&mut ids);
        for (place, id) in self.ids.iter().zip(ids) {
            // A request uses the number it reads before it is sent.
            place.store(id, Release);
        }
        result
    }

    /// Returns the server's number of a device.
    fn server_id(&self, user_id: u32) -> u32 {
        self.ids
            .get(user_id as usize)
            .map_or(NO_ID, |id| id.load(Acquire))
    }
}

/// Inspects the answer to the message that begins the session.
struct InfoInspector(Arc<Restart>, Info);

impl Inspector for InfoInspector {
    fn inspect(self, answer: &mut Answer<'_>, result: Option<i32>) -> i32 {
        let Self(restart, info) = self;
        if result == Some(0) {
            let mut buf = [0; INFO_SIZE];
            let len = answer.read(&mut buf);
            let version = buf.get(..len).and_then(rnbd::version);
            match version {
                Some(version) => restart.with(|known| known.info = Some((info, version))),
                None => {
                    let why = "the server does not speak as RNBD's does";
                    restart.disable(User::RnbdUntracked, why);
                }
            }
        }
        result.unwrap_or(0)
    }
}

/// Inspects the answer to a message that opens a device, with the number of writes when it was
/// sent.
struct OpenInspector(Arc<Restart>, Open, Written);

impl Inspector for OpenInspector {
    fn inspect(self, answer: &mut Answer<'_>, result: Option<i32>) -> i32 {
        let Self(restart, open, written) = self;
        match result {
            Some(0) => restart.opened(&open, written, answer),
            _ => result.unwrap_or(0),
        }
    }
}

/// Waits for the end of a message that closes a device.
struct CloseInspector(Arc<Restart>, u32);

impl Inspector for CloseInspector {
    fn inspect(self, _: &mut Answer<'_>, result: Option<i32>) -> i32 {
        let Self(restart, id) = self;
        restart.change(|known| known.devices().closed(id));
        result.unwrap_or(0)
    }
}

impl Restart {
    /// The server has opened a device: notes it, and puts the user's number into the answer.
    /// Returns the result for the user.
    fn opened(&self, open: &Open, written: Written, answer: &mut Answer<'_>) -> i32 {
        let mut buf = [0; OPENED_SIZE];
        let len = answer.read(&mut buf);
        let shifted = self.shifted.load(Acquire);
        let noted = buf.get(..len).and_then(Opened::parse).and_then(|opened| {
            self.change(|known| known.devices().opened(open, &opened, shifted, written))
                .ok()
        });
        match noted {
            Some(id) if shifted => {
                let mut head = [0; rnbd::ID_OFFSET + size_of::<u32>()];
                answer.read(&mut head);
                if let Some(place) = head.last_chunk_mut() {
                    *place = id.to_le_bytes();
                }
                answer.write(&head);
                0
            }
            Some(_) => 0,
            // The user's number would be that of another device.
            None if shifted => errno::ENOSPC.to_errno(),
            None => {
                let why = "more is open than there is room to note";
                self.disable(User::RnbdUntracked, why);
                0
            }
        }
    }
}

/// The result of translating a request that was made for another life of the server.
pub(super) enum Translated<'t> {
    /// Its message fits the present server.
    Fits(Turn<'t>),
    /// There is nothing to send: it ends with this result.
    Over(Turn<'t>, i32),
    /// It cannot be sent.
    Lost(Turn<'t>),
}

impl Session {
    /// A message of the service connection is about to be sent. Any context.
    ///
    /// # Errors
    ///
    /// If there is no memory for inspecting the answer.
    #[cold]
    #[inline(never)]
    pub(super) fn observe(&self, io: &mut Io, message: Message<'_>) -> Result {
        let Some(restart) = self.restart.as_ref() else {
            return Ok(());
        };
        let mut buf = [0; OPEN_SIZE];
        let mut len = 0usize;
        for piece in message.pieces() {
            // No overflow: the sum was checked.
            let end = len.wrapping_add(piece.len());
            if let Some(place) = buf.get_mut(len..end) {
                place.copy_from_slice(piece);
            }
            len = end;
        }
        let message = buf.get(..len).unwrap_or(&[]);
        let kind = rnbd::Message::parse(message);
        let user = restart.with(|known| {
            known.user = match (known.user, kind) {
                (User::Unknown, Some(rnbd::Message::Info)) => User::Rnbd,
                (User::Unknown, _) => User::Other,
                (user, _) => user,
            };
            if let Some(rnbd::Message::Close(id)) = kind {
                known.devices().closing(id);
            }
            if known.permit.is_none() && known.user == User::Rnbd {
                known.permit = self.spare_permit();
            }
            known.user
        });
        // Numbers that differ from the server's keep doing so.
        if user != User::Rnbd && !restart.shifted.load(Relaxed) {
            return Ok(());
        }
        let restart = restart.clone();
        match kind {
            Some(rnbd::Message::Info) if io.loan.count() == INFO_SIZE => {
                let info = Info::parse(message).ok_or(EINVAL)?;
                io.loan.inspect_by(InfoInspector(restart, info))
            }
            Some(rnbd::Message::Open) if io.loan.count() == OPENED_SIZE => {
                let open = Open::parse(message).ok_or(EINVAL)?;
                io.loan
                    .inspect_by(OpenInspector(restart, open, self.written()))
            }
            Some(rnbd::Message::Close(id)) => io.loan.inspect_by(CloseInspector(restart, id)),
            _ => {
                restart.disable(User::Other, "a message is none of RNBD's");
                Ok(())
            }
        }
    }

    /// Returns a permit to keep, if there are enough.
    pub(super) fn spare_permit(&self) -> Option<u16> {
        let permits = &self.negotiated.get()?.permits;
        if permits.len() < 2 {
            return None;
        }
        let id = permits.get(false, |io| {
            io.connection = Connection::Admin;
            io.con = 0;
        })?;
        // CAST: Less than the queue depth.
        Some(id as u16)
    }

    /// Gives back the permit that was kept: the session ends.
    pub(super) fn end_restart(&self) {
        let (Some(restart), Some(negotiated)) = (self.restart.as_ref(), self.negotiated.get())
        else {
            return;
        };
        let permit = restart.with(|known| {
            // No permit is kept after that.
            known.user = User::Other;
            known.take_permit()
        });
        if let Some(id) = permit {
            negotiated.permits.put(usize::from(id));
        }
    }

    /// Changes the message of a request for the present server. The message was made for an earlier
    /// server, or has the user's number of a device, which differs from the server's. Any context.
    #[cold]
    #[inline(never)]
    pub(super) fn translate<'t>(&self, id: u16, mut turn: Turn<'t>) -> Translated<'t> {
        let Some(restart) = self.restart.as_ref() else {
            return Translated::Lost(turn);
        };
        // Read before everything else, see `restored()`.
        let present = self.epochs.present();
        let made = Epoch::from_word(turn.epoch);
        let oldest = self.epochs.oldest();
        if !made.is_since(oldest, present) {
            return Translated::Lost(turn);
        }
        let (Some(message), Some(user_id)) = (message_of(&turn), self.user_id_of(id)) else {
            return Translated::Lost(turn);
        };
        let (named, closes) = match message {
            rnbd::Message::Info | rnbd::Message::Open => {
                turn.epoch = present.to_word();
                return Translated::Fits(turn);
            }
            rnbd::Message::Close(named) => (named, true),
            rnbd::Message::Io(named) | rnbd::Message::Flush(named) => (named, false),
        };
        // A message that was renamed for a server that is gone meanwhile has a number of that
        // server.
        if made.has_user_id() && !turn.renamed {
            user_id.store(named, Relaxed);
        }
        match restart.server_id(user_id.load(Relaxed)) {
            // There is no device to close.
            NO_ID if closes => Translated::Over(turn, 0),
            NO_ID => Translated::Over(turn, errno::ECONNABORTED.to_errno()),
            server_id => match rename(&turn, server_id) {
                Some(()) => {
                    turn.renamed = true;
                    turn.epoch = present.to_word();
                    Translated::Fits(turn)
                }
                None => Translated::Lost(turn),
            },
        }
    }

    /// Whether a request that was sent is RNBD's message that closes a device. Any context.
    pub(super) fn closes_device(&self, turn: &Turn<'_>) -> bool {
        let Some(restart) = self.restart.as_ref() else {
            return false;
        };

        turn.connection == Connection::Admin
            && matches!(message_of(turn), Some(rnbd::Message::Close(_)))
            && restart.with(|known| matches!(known.user, User::Rnbd | User::RnbdUntracked))
    }

    /// Changes a message that closes a device, and was sent, so that it closes none. The server may
    /// have closed the device, and given its number to another one since, which a second copy would
    /// close. The user waits for the answer to the copy: an answer shows that the first one is
    /// over, if the server orders copies. If it was lost, the server closes the device with the
    /// session. Returns `false` if the message has no place for a number. Any context.
    pub(super) fn make_harmless(&self, turn: &Turn<'_>) -> bool {
        let Some(user_id) = self.user_id_of(turn.id) else {
            return false;
        };

        // Not to be translated to a number again.
        user_id.store(NO_ID, Relaxed);
        rename(turn, NO_ID).is_some()
    }

    /// The server is another one than before, and has all devices of the user open. Requests of the
    /// last one are translated from now on. Sleeps until no task sends without that knowledge. No
    /// path is up.
    pub(super) fn restored(&self, restart: &Restart) {
        let written = self.written_at_the_end();
        let shifted = restart.change(|known| {
            let mut devices = known.devices();
            devices.go_over(written);
            devices.is_shifted()
        });
        restart.shifted.store(shifted, Release);
        self.epochs.begin(shifted);
        rcu::synchronize();
    }

    /// The user is about to be told of `event`. Devices that it unmaps between a loss of the
    /// session and its end are not closed.
    pub(super) fn before_event(&self, event: LinkEvent) {
        if let Some(restart) = self.restart.as_ref() {
            restart.with(|known| match event {
                LinkEvent::Disconnected => known.devices().doubt_all(),
                LinkEvent::Reconnected => known.devices().wait_for_doubted(),
            });
        }
    }

    /// The user was told that the session and its open devices were lost. No path is up.
    pub(super) fn forget_user(&self) {
        if let Some(restart) = self.restart.as_ref() {
            let mut ending = false;
            self.for_each_path(|path| ending |= path.is_ending());
            // Links that are being torn down may have answers that are not counted yet: then no
            // device is known to be clean.
            let written = self.written_at_the_end();
            let written = written.map(|written| if ending { Written::MAX } else { written });
            restart.change(|known| known.devices().forget_all(written));
            restart.shifted.store(false, Release);
        }
        self.epochs.begin_anew();
    }
}

/// Returns the user's message of a request, if it is one of RNBD's.
fn message_of(io: &Io) -> Option<rnbd::Message> {
    let mut buf = [0; OPEN_SIZE];
    let buf = buf.get_mut(..usize::from(io.layout.usr_len()))?;

    io.message.read(0, buf)?;
    rnbd::Message::parse(buf)
}

/// Puts a server's number of a device into the message of a request.
fn rename(io: &Io, server_id: u32) -> Option<()> {
    io.message
        .write(rnbd::ID_OFFSET, &server_id.to_le_bytes())
        .map(|_| ())
}
