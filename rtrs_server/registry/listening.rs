// SPDX-License-Identifier: GPL-2.0

//! The addresses at which the servers of this module listen.
//!
//! # Locking
//!
//! `listening` (mutex) is innermost.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::ib::SockAddr;

use super::Registry;

/// An address in the table, until it is dropped.
pub(crate) struct Listening {
    registry: Arc<Registry>,
    addr: Arc<SockAddr>,
}

impl Listening {
    /// Notes that a server listens at `addr`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(registry: &Arc<Registry>, addr: SockAddr) -> Result<Self> {
        let addr = Arc::new(addr, GFP_KERNEL)?;
        registry.listening.lock().push(addr.clone(), GFP_KERNEL)?;
        Ok(Self {
            registry: registry.clone(),
            addr,
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut all = self.registry.listening.lock();

        all.retain(|addr| !Arc::ptr_eq(addr, &self.addr));
    }
}

impl Registry {
    /// Calls `f`, which must not call the registry, with each address. May sleep.
    pub(crate) fn each_listening(&self, mut f: impl FnMut(&SockAddr)) {
        for addr in self.listening.lock().iter() {
            f(addr);
        }
    }
}
