// SPDX-License-Identifier: GPL-2.0

//! The devices that RNBD has open in a session.
//!
//! A device has two numbers: the *user's*, which RNBD puts into its messages and which stays for as
//! long as RNBD has the device open, and the *server's*, by which the present server knows it. They
//! are the same until a restarted server gives other numbers. Then the session is *shifted*, and
//! the user's number in each message is replaced by the server's.
//!
//! A device with a volatile cache may lose acknowledged data that are not flushed when the server
//! loses power. The number of writes of the session at the device's last flush shows whether there
//! can be such data. If there were any when the server lost the session, the device *owes* an
//! error: its next flush fails, even if RNBD has opened it again since.
//!
//! A device that RNBD unmaps after it was told that the session is lost is not closed: RNBD sends
//! no message. But when RNBD is told that the session is back it opens all devices that it still
//! has. So all devices that were open before the loss are *offline* then, until RNBD opens them.

use super::rnbd::{
    Difference,
    Open,
    Opened, //
};

/// Maximum of open devices in a session. With more, devices are not opened again.
pub const MAX_DEVICES: usize = 128;

/// Numbers of devices must be less than this. Otherwise, devices are not opened again.
pub const MAX_IDS: usize = 256;

/// The server's number of a device that it does not have.
pub const NO_ID: u32 = u32::MAX;

/// The number of completed writes of a session. It may be too small, and grows with each write.
pub type Written = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The entry has no device.
    Free,
    /// A device that is not open: its unflushed data, or the error it owes, count if it is opened
    /// again.
    Remembered,
    Open,
    /// RNBD was told that the session is back, and has not opened the device since. Maybe it never
    /// will. The server may still have it open.
    Offline,
    /// RNBD has asked for it to be closed.
    Closing,
}

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    state: State,
    open: Open,
    opened: Opened,
    user_id: u32,
    server_id: u32,
    /// Number at the next server, while devices are being opened again.
    next_id: u32,
    /// Number of writes at its last flush, if all earlier ones were flushed.
    clean_at: Option<Written>,
    owes: bool,
    /// RNBD was told that the session is lost, and has not opened the device since.
    doubted: bool,
}

impl Device {
    /// An entry without a device.
    pub const FREE: Self = Self {
        state: State::Free,
        open: Open::NONE,
        opened: Opened::NONE,
        user_id: NO_ID,
        server_id: NO_ID,
        next_id: NO_ID,
        clean_at: None,
        owes: false,
        doubted: false,
    };

    /// Returns the message that opened it.
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// The user's number.
    pub const fn user_id(&self) -> u32 {
        self.user_id
    }

    /// Whether an acknowledged write may be lost with the power.
    fn has_volatile_cache(&self) -> bool {
        self.opened.has_volatile_cache() && !self.open.is_read_only()
    }

    /// Whether there may be an acknowledged write that can be lost.
    fn is_dirty(&self, written: Written) -> bool {
        self.has_volatile_cache() && self.clean_at != Some(written)
    }

    fn is_open(&self) -> bool {
        self.state == State::Open
    }

    fn is_there(&self) -> bool {
        matches!(self.state, State::Open | State::Offline | State::Closing)
    }

    /// It is not open any more.
    fn leave(&mut self) {
        if self.has_volatile_cache() {
            self.state = State::Remembered;
            self.user_id = NO_ID;
            self.server_id = NO_ID;
            self.next_id = NO_ID;
        } else {
            *self = Self::FREE;
        }
    }
}

/// There is no room for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The devices of a session, in no order.
#[derive(Debug)]
pub struct Devices<'a>(pub &'a mut [Device]);

impl Devices<'_> {
    /// The server has opened a device, which may be open already. `written` is the number of writes
    /// when the server was asked. Returns the user's number, which is the server's unless the
    /// session is `shifted`.
    ///
    /// # Errors
    ///
    /// If there is no room for it, or its number is too large: it is not noted.
    pub fn opened(
        &mut self,
        open: &Open,
        opened: &Opened,
        shifted: bool,
        written: Written,
    ) -> Result<u32, Full> {
        let server_id = opened.id();
        if usize::try_from(server_id).map_or(true, |id| id >= MAX_IDS) {
            return Err(Full);
        }
        let known = self
            .0
            .iter()
            .position(|d| d.is_there() && d.open.name() == open.name());
        // The server gives a number that is free there: the device that had it is not open any
        // more.
        for (i, device) in self.0.iter_mut().enumerate() {
            if device.is_there() && device.server_id == server_id && Some(i) != known {
                *device = Device::FREE;
            }
        }
        // RNBD is about to close a device of that number, which this server never had.
        let leaving = |d: &Device| d.is_there() && d.user_id == server_id && d.server_id == NO_ID;
        if !shifted && self.0.iter().any(leaving) {
            return Err(Full);
        }
        let kept = known.and_then(|i| self.0.get(i)).copied();
        let user_id = match kept {
            _ if !shifted => server_id,
            Some(device) => device.user_id,
            None => self.free_user_id(server_id).ok_or(Full)?,
        };
        let remembered = |d: &Device| d.state == State::Remembered && d.open.name() == open.name();
        let i = known
            .or_else(|| self.0.iter().position(remembered))
            .or_else(|| self.0.iter().position(|d| d.state == State::Free))
            // Entries of devices that are not open are reused first.
            .or_else(|| self.0.iter().position(|d| !d.is_there()))
            .or_else(|| self.0.iter().position(|d| d.state == State::Offline));
        let place = i.and_then(|i| self.0.get_mut(i)).ok_or(Full)?;
        let same = place.state != State::Free && place.open.name() == open.name();
        *place = Device {
            state: State::Open,
            open: *open,
            opened: *opened,
            user_id,
            server_id,
            next_id: NO_ID,
            // Opening a device again does not make it clean.
            clean_at: if same { place.clean_at } else { Some(written) },
            owes: same && place.owes,
            doubted: false,
        };
        Ok(user_id)
    }

    /// A device will be flushed.
    pub fn flush(&mut self, user_id: u32) -> Flush {
        match self.by_user_id(user_id) {
            Some(device) if device.owes => {
                device.owes = false;
                Flush::Fails
            }
            Some(device) if device.has_volatile_cache() => Flush::Matters,
            _ => Flush::Whatever,
        }
    }

    /// A device was flushed, after which `written` writes are safe.
    pub fn flushed(&mut self, user_id: u32, written: Written) {
        if let Some(device) = self.by_user_id(user_id) {
            // Two flushes may overtake each other.
            device.clean_at = device.clean_at.max(Some(written));
        }
    }

    /// Returns a number that RNBD does not use: `wish`, if that is free.
    fn free_user_id(&self, wish: u32) -> Option<u32> {
        let used = |id: u32| self.0.iter().any(|d| d.is_there() && d.user_id == id);
        if !used(wish) {
            return Some(wish);
        }
        // CAST: The value is a few hundred.
        (0..MAX_IDS as u32).find(|&id| !used(id))
    }

    fn by_user_id(&mut self, id: u32) -> Option<&mut Device> {
        self.0.iter_mut().find(|d| d.is_there() && d.user_id == id)
    }

    /// RNBD closes a device: it is not opened again.
    pub fn closing(&mut self, user_id: u32) {
        if let Some(device) = self.by_user_id(user_id) {
            device.state = State::Closing;
        }
    }

    /// A close is over, with any result; ignored if RNBD has opened the device again meanwhile.
    pub fn closed(&mut self, user_id: u32) {
        if let Some(device) = self.by_user_id(user_id) {
            if device.state == State::Closing {
                device.leave();
            }
        }
    }

    /// RNBD is about to be told that the session is lost: until it opens a device again it sends no
    /// message when it unmaps that.
    pub fn doubt_all(&mut self) {
        for device in self.0.iter_mut().filter(|d| d.is_open()) {
            device.doubted = true;
        }
    }

    /// RNBD is about to be told that the session is back: it opens all devices that it still has,
    /// except those that it has opened meanwhile.
    pub fn wait_for_doubted(&mut self) {
        for device in self.0.iter_mut().filter(|d| d.is_open() && d.doubted) {
            device.state = State::Offline;
        }
    }

    /// No device is open any more. Devices that may have lost data owe an error, unless it is known
    /// that caches survive (`None`).
    pub fn forget_all(&mut self, written: Option<Written>) {
        for device in self.0.iter_mut() {
            let dirty = written.is_some_and(|written| device.is_dirty(written));
            let open = *device.open();
            let owes = device.owes || device.state != State::Free && dirty;
            *device = Device::FREE;
            if owes {
                device.state = State::Remembered;
                device.open = open;
                device.owes = true;
            }
        }
    }

    /// Returns the open device with the smallest user's number of at least `from`. In this order, a
    /// server that has just started gives the numbers 0, 1, 2, ...: the same as before if there
    /// were no gaps.
    pub fn next(&self, from: u32) -> Option<&Device> {
        self.0
            .iter()
            .filter(|d| d.is_open() && d.user_id >= from)
            .min_by_key(|d| d.user_id)
    }

    /// Returns the first open device that may lose data with the power.
    pub fn dirty(&self, written: Written) -> Option<&Device> {
        self.0.iter().find(|d| d.is_open() && d.is_dirty(written))
    }

    /// Number of open devices.
    pub fn count(&self) -> usize {
        self.0.iter().filter(|d| d.is_open()).count()
    }

    /// A server that does not know the session begins to open the devices: it has none of them.
    pub fn begin_again(&mut self) {
        for device in self.0.iter_mut() {
            device.next_id = NO_ID;
        }
    }

    /// The new server has opened all it can: from now on its numbers count. A device for which it
    /// was not asked has no number, and owes an error if it may have lost data, unless it is known
    /// that caches survive (`None`).
    pub fn go_over(&mut self, written: Option<Written>) {
        for device in self.0.iter_mut() {
            device.server_id = device.next_id;
            let dirty = written.is_some_and(|written| device.is_dirty(written));
            if !matches!(device.state, State::Free | State::Open) && dirty {
                device.owes = true;
            }
            // If RNBD still has it, it uses no number before it has opened it.
            if device.state == State::Offline && device.server_id == NO_ID {
                device.leave();
            }
        }
    }

    /// The new server has opened the device with this user's number.
    ///
    /// # Errors
    ///
    /// If the device differs from the one before.
    pub fn opened_again(&mut self, user_id: u32, opened: &Opened) -> Result<(), Unlike> {
        let server_id = opened.id();
        let taken = self
            .0
            .iter()
            .any(|d| d.is_there() && d.user_id != user_id && d.next_id == server_id);
        if taken || usize::try_from(server_id).map_or(true, |id| id >= MAX_IDS) {
            return Err(Unlike::Number);
        }
        // RNBD has closed it meanwhile. The server closes it when the session ends.
        let Some(device) = self.by_user_id(user_id) else {
            return Ok(());
        };
        if let Some(difference) = device.opened.difference(opened) {
            return Err(Unlike::Device(difference));
        }
        device.next_id = server_id;
        Ok(())
    }

    /// Whether the server has other numbers than the user.
    pub fn is_shifted(&self) -> bool {
        self.0
            .iter()
            .any(|d| d.is_there() && d.server_id != NO_ID && d.user_id != d.server_id)
    }

    /// Fills in the server's number of each device, by the user's number; [`NO_ID`] if there is
    /// none.
    pub fn fill_in(&self, ids: &mut [u32]) {
        ids.fill(NO_ID);
        for device in self.0.iter().filter(|d| d.is_there()) {
            let place = usize::try_from(device.user_id)
                .ok()
                .and_then(|id| ids.get_mut(id));
            if let Some(place) = place {
                *place = device.server_id;
            }
        }
    }
}

/// The meaning of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// All data are safe anyway.
    Whatever,
    /// There are data that may be lost.
    Matters,
    /// Data may have been lost: the flush fails.
    Fails,
}

/// The reason why a device that was opened again cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlike {
    /// It is another device.
    Device(Difference),
    /// The server's number for it is invalid, or that of another device.
    Number,
}
