// SPDX-License-Identifier: GPL-2.0

//! The steps of making a connection, which are taken with the handler mutex held.

use core::ops::Deref;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::Arc, //
};

use super::{
    Endpoint,
    Handler, //
};
use crate::{
    atomic::{
        Acquire,
        Relaxed,
        Release, //
    },
    ib::{
        cm::{
            CmId,
            ConnParam,
            RejectMessage, //
        },
        domain::Domain,
        queue::{
            QueueConfig,
            QueuePair, //
        },
    },
    raw, //
};

/// An endpoint, with the guarantee that no other code is handling one of its events.
pub struct Locked<'a, H: Handler>(pub(super) &'a Endpoint<H>);

impl<H: Handler> Deref for Locked<'_, H> {
    type Target = Endpoint<H>;

    fn deref(&self) -> &Endpoint<H> {
        self.0
    }
}

impl<'a, H: Handler> Locked<'a, H> {
    /// The endpoint.
    pub fn endpoint(&self) -> &'a Endpoint<H> {
        self.0
    }

    /// Creates the queue pair, in `domain` on the device that the address was resolved to. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one already, `EINVAL` if the device does not support the sizes,
    /// `ECONNABORTED` during teardown, or an error of the driver.
    pub fn create_qp(&self, domain: &Arc<Domain>, cfg: &QueueConfig) -> Result<&'a QueuePair> {
        let ep = self.0;
        if ep.dying.load(Acquire) {
            return Err(crate::errno::ECONNABORTED);
        }
        if ep.qp().is_some() {
            return Err(EBUSY);
        }
        let (id, owner) = (ep.id()?.as_nonnull(), ep.consumer.name());
        // SAFETY: `ep` is pinned and owns the id and the result; it has no QP, and no other thread
        // creates one: that takes the handler lock, which is held.
        let qp = unsafe { QueuePair::new(id, ep, domain, cfg, owner) }?;
        ep.qp.populate(qp);
        ep.domain
            .store(core::ptr::from_ref(&**domain).addr(), Release);
        ep.qp().ok_or(EINVAL)
    }

    /// Starts to resolve the route; an event reports the result.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe {
            raw::rdma_resolve_route(self.0.id()?.as_raw(), timeout_ms as ffi::c_ulong)
        })
    }

    /// Starts to connect; an event reports the result. May sleep.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` after a [disconnect](Endpoint::disconnect), `ENETDOWN` while the port is down,
    /// `EINVAL` without a [queue pair](Self::create_qp), or an error of the connection manager.
    pub fn connect(&self, param: ConnParam<'_>) -> Result {
        if self.0.ending.load(Acquire) {
            return Err(crate::errno::ECONNABORTED);
        }
        let mut param = param.to_raw()?;
        let id = self.connectable()?;
        self.0.greeted.store(true, Relaxed);
        // SAFETY: The id is valid and its handler lock is held; the parameters are only read.
        to_result(unsafe { raw::rdma_connect_locked(id.as_raw(), &mut param) })
    }

    /// Accepts the request that the endpoint was made from. If this fails, the request is refused
    /// without a message, by now or as soon as the port is active. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`connect()`](Self::connect); `EINVAL` without a request, or if it was accepted or
    /// refused before.
    pub fn accept(&self, param: ConnParam<'_>) -> Result {
        if self.0.ending.load(Acquire) {
            return Err(crate::errno::ECONNABORTED);
        }
        let mut param = param.to_raw()?;
        let id = self.connectable()?;
        if !self.decide() {
            return Err(EINVAL);
        }
        // SAFETY: The id is valid and its handler lock is held; the parameters are only read. It is
        // that of a request that was not decided about before.
        to_result(unsafe { raw::rdma_accept(id.as_raw(), &mut param) })
    }

    /// Refuses the request that the endpoint was made from: with a message, or while the port is
    /// down without one, when the endpoint was dropped and the port is active. Does nothing without
    /// a request, or if it was accepted or refused before. May sleep.
    pub fn reject(&self, message: &RejectMessage) {
        match self.0.resolved_id() {
            Some(id) if self.decide() => id.reject(message),
            _ => (),
        }
    }

    /// Returns whether a request is there to be decided about. True once.
    fn decide(&self) -> bool {
        self.0.undecided.xchg(false, Relaxed)
    }

    /// The id, if its port is active: a datagram must not be sent otherwise. And if it has a queue
    /// pair: without one, the connection manager of iWARP looks for the queue pair number 0.
    fn connectable(&self) -> Result<&'a CmId> {
        let id = self.0.resolved_id().ok_or(EINVAL)?;
        if !id.port_is_active() {
            return Err(crate::errno::ENETDOWN);
        }
        match self.0.qp() {
            Some(_) => Ok(id),
            None => Err(EINVAL),
        }
    }
}
