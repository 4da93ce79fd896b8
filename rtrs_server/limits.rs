// SPDX-License-Identifier: GPL-2.0

//! Limits on the resources of clients, for all servers together, and reasons to refuse one.

use core::fmt;
use kernel::{
    pr_err_once,
    prelude::*,
    sync::Arc, //
};

use rtrs_core::proto::{
    errno,
    RejectErrno, //
};

use crate::{
    config,
    logic::quota::{
        OverQuota,
        Quota,
        Resource, //
    },
};

/// The quotas of this module.
pub(crate) struct Limits {
    quotas: [Quota; Resource::COUNT],
}

impl Limits {
    /// Makes the quotas that the module's parameters give. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn from_params() -> Result<Arc<Self>> {
        let quotas = Resource::ALL.map(|resource| Quota::new(resource, config::max_of(resource)));
        Ok(Arc::new(Self { quotas }, GFP_KERNEL)?)
    }

    /// Takes `count` units of a total, until the share is dropped. Any context.
    pub(crate) fn take(
        self: &Arc<Self>,
        resource: Resource,
        count: u64,
    ) -> Result<Charge, OverQuota> {
        self.quota(resource).take(count)?;
        Ok(Charge {
            limits: self.clone(),
            resource,
            count,
        })
    }

    /// The quota of `resource`.
    pub(crate) fn quota(&self, resource: Resource) -> &Quota {
        // PANIC: The index of a resource is less than `Resource::COUNT`.
        &self.quotas[resource.index()]
    }
}

/// Units of a total that are in use. Given back when dropped, in any context.
pub(crate) struct Charge {
    limits: Arc<Limits>,
    resource: Resource,
    count: u64,
}

impl Charge {
    /// Units that it has. Any context.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Takes more units of the same total. Any context.
    pub(crate) fn more(&mut self, count: u64) -> Result<(), OverQuota> {
        self.limits.quota(self.resource).take(count)?;
        // No overflow: the quota's own account is larger.
        self.count = self.count.saturating_add(count);
        Ok(())
    }

    /// Gives some units back. Any context.
    pub(crate) fn fewer(&mut self, count: u64) {
        let count = count.min(self.count);

        self.count = self.count.saturating_sub(count);
        if !self.limits.quota(self.resource).uncharge(count) {
            pr_err_once!("more {} given back than taken\n", self.resource.as_str());
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.fewer(self.count);
    }
}

/// Reason to refuse a connection.
pub(crate) enum Refusal {
    /// A quota is exhausted.
    Quota(OverQuota),
    /// Another error.
    Errno(RejectErrno),
}

impl Refusal {
    /// The message makes no sense here.
    pub(crate) const RESET: Self = Self::Errno(RejectErrno::CONNRESET);

    /// Returns the errno of the reject message.
    pub(crate) fn errno(&self) -> RejectErrno {
        match self {
            Self::Quota(OverQuota {
                resource: Resource::Memory | Resource::MemoryPerSource,
                ..
            }) => RejectErrno::from_kernel(-errno::ENOMEM),
            Self::Quota(_) => RejectErrno::from_kernel(-errno::EUSERS),
            Self::Errno(errno) => *errno,
        }
    }
}

rtrs_core::kernel_display!(OverQuota, Refusal);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(over) => over.fmt(f),
            Self::Errno(errno) => errno.to_kernel().fmt(f),
        }
    }
}

impl From<OverQuota> for Refusal {
    fn from(over: OverQuota) -> Self {
        Self::Quota(over)
    }
}

impl From<RejectErrno> for Refusal {
    fn from(errno: RejectErrno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Errno(RejectErrno::from_kernel(e.to_errno()))
    }
}
