// SPDX-License-Identifier: GPL-2.0

//! Limits on what clients may take from a server: sessions, paths, connections, pinned memory.
//!
//! Nobody is authenticated before taking any of it, so each has a maximum, and what is in use is
//! counted exactly: taken before the thing is made, given back after it is gone.

use core::fmt;

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Sessions of the server.
    Sessions,
    /// Sessions of one source address.
    SessionsPerSource,
    /// Paths of one session.
    Paths,
    /// Connections of one path.
    Cons,
    /// Pinned memory in bytes.
    Bytes,
}

impl Resource {
    /// A short name for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::SessionsPerSource => "sessions per source address",
            Self::Paths => "paths per session",
            Self::Cons => "connections per path",
            Self::Bytes => "pinned memory",
        }
    }
}

/// A quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// Of what.
    pub resource: Resource,
    /// The maximum at that time.
    pub max: u64,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "quota of {} {} used up",
            self.max,
            self.resource.as_str()
        )
    }
}

/// One counted resource. May be used from any context, by any number of CPUs.
pub struct Quota {
    resource: Resource,
    max: Atomic<u64>,
    current: Atomic<u64>,
}

impl Quota {
    /// A quota of `max` units, none of them in use.
    pub fn new(resource: Resource, max: u64) -> Self {
        Self {
            resource,
            max: Atomic::<u64>::new(max),
            current: Atomic::<u64>::new(0),
        }
    }

    /// Takes `count` units.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if more than the maximum would be in use; nothing is taken then.
    pub fn take(&self, count: u64) -> Result<(), OverQuota> {
        let max = self.max();

        self.update(|current| current.checked_add(count).filter(|&sum| sum <= max))
            .ok_or(OverQuota {
                resource: self.resource,
                max,
            })
    }

    /// Gives `count` units back.
    ///
    /// `false` if that many were not in use: a mistake of the caller; then none are now.
    pub fn give_back(&self, count: u64) -> bool {
        if self.update(|current| current.checked_sub(count)).is_some() {
            return true;
        }
        self.current.store(0, Relaxed);
        false
    }

    /// Units in use.
    pub fn current(&self) -> u64 {
        self.current.load(Relaxed)
    }

    /// The maximum.
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// Changes the maximum; what is in use beyond it stays until it is given back.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Relaxed);
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Option<()> {
        loop {
            let old = self.current.load(Relaxed);
            let new = change(old)?;

            if self.current.cmpxchg(old, new, Full).is_ok() {
                return Some(());
            }
        }
    }
}

/// How many sessions come from one source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSlot {
    /// The address in 16 bytes, without port: IPv6 or GID, or IPv4 as mapped.
    addr: [u8; 16],
    /// Sessions; the slot is free if there are none.
    sessions: u32,
}

/// Counts sessions per source address in `S`, a slice of [`SourceSlot`] with room for as many
/// addresses as there may be sessions. To be kept in the lock of the table of sessions.
pub struct Sources<S> {
    slots: S,
}

impl<S: AsRef<[SourceSlot]> + AsMut<[SourceSlot]>> Sources<S> {
    /// Counts in `slots`, which are emptied.
    pub fn new(mut slots: S) -> Self {
        slots.as_mut().fill(SourceSlot::default());
        Self { slots }
    }

    /// Counts one more session of `addr`.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if it has `max` already, or there is no slot for another address.
    pub fn take(&mut self, addr: &[u8; 16], max: u32) -> Result<(), OverQuota> {
        let over = OverQuota {
            resource: Resource::SessionsPerSource,
            max: u64::from(max),
        };
        let slots = self.slots.as_mut();
        let index = slots
            .iter()
            .position(|slot| slot.sessions != 0 && slot.addr == *addr)
            .or_else(|| slots.iter().position(|slot| slot.sessions == 0))
            .ok_or(over)?;
        let slot = slots.get_mut(index).ok_or(over)?;

        if slot.sessions >= max {
            return Err(over);
        }
        // No overflow: below a 32-bit number.
        slot.sessions = slot.sessions.saturating_add(1);
        slot.addr = *addr;
        Ok(())
    }

    /// Counts one session of `addr` less; `false` if it had none, a mistake of the caller.
    pub fn give_back(&mut self, addr: &[u8; 16]) -> bool {
        let slot = self
            .slots
            .as_mut()
            .iter_mut()
            .find(|slot| slot.sessions != 0 && slot.addr == *addr);

        match slot {
            Some(slot) => {
                slot.sessions = slot.sessions.saturating_sub(1);
                true
            }
            None => false,
        }
    }

    /// Sessions of `addr`.
    pub fn current(&self, addr: &[u8; 16]) -> u32 {
        self.slots
            .as_ref()
            .iter()
            .find(|slot| slot.sessions != 0 && slot.addr == *addr)
            .map_or(0, |slot| slot.sessions)
    }
}
