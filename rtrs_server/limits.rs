// SPDX-License-Identifier: GPL-2.0

//! Limits on the resources of clients, for all servers together, and
//! `/sys/module/rtrs_server/quotas`.

use kernel::{
    pr_err_once,
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    attribute::{
        attributes,
        trim_newline, //
    },
    compat::this_module,
    kobject::{
        Dir,
        ModuleParent, //
    },
};

use crate::{
    config,
    logic::quota::{
        OverQuota,
        Quota,
        Resource, //
    },
    registry::Registry,
    sysfs::line, //
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
    ) -> Result<Share, OverQuota> {
        self.quota(resource).take(count)?;
        Ok(Share {
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
pub(crate) struct Share {
    limits: Arc<Limits>,
    resource: Resource,
    count: u64,
}

impl Share {
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
        if !self.limits.quota(self.resource).give_back(count) {
            pr_err_once!("more {} given back than taken\n", self.resource.as_str());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.fewer(self.count);
    }
}

/// One resource in sysfs.
struct Gauge {
    registry: Arc<Registry>,
    resource: Resource,
}

/// `/sys/module/rtrs_server/quotas`. Dropping it removes it.
//
// Not below the class: there, clients name the directories. Field order is teardown order.
pub(crate) struct QuotaFiles {
    _gauges: KVec<Dir<Gauge>>,
    _top: Dir<()>,
    _module: ModuleParent,
}

impl QuotaFiles {
    /// Makes the directory. May sleep.
    pub(crate) fn new(registry: &Arc<Registry>) -> Result<Self> {
        let module = ModuleParent::new(this_module!())?;
        let top = Dir::new(&module, c"quotas", &[], Arc::new((), GFP_KERNEL)?)?;
        let mut gauges = KVec::with_capacity(Resource::COUNT, GFP_KERNEL)?;
        for resource in Resource::ALL {
            let gauge = Gauge {
                registry: registry.clone(),
                resource,
            };
            let gauge = Arc::new(gauge, GFP_KERNEL)?;
            gauges.push(
                Dir::new(&top, dir_name(resource), &[&FILES], gauge)?,
                GFP_KERNEL,
            )?;
        }
        Ok(Self {
            _gauges: gauges,
            _top: top,
            _module: module,
        })
    }
}

const fn dir_name(resource: Resource) -> &'static CStr {
    match resource {
        Resource::Sessions => c"sessions",
        Resource::SessionsPerSource => c"sessions_per_source",
        Resource::Handshakes => c"handshakes",
        Resource::HandshakesPerSource => c"handshakes_per_source",
        Resource::PathsPerSession => c"paths_per_session",
        Resource::Cons => c"cons",
        Resource::ConsPerPath => c"cons_per_path",
        Resource::ConsPerSource => c"cons_per_source",
        Resource::Memory => c"memory",
        Resource::MemoryPerSource => c"memory_per_source",
    }
}

attributes! {
    /// Files of a quota.
    static FILES: [Gauge] = {
        "max" => rw(|gauge, out| line(out, gauge.quota().max()), set_max),
        "current" => ro(|gauge, out| line(out, gauge.registry.usage(gauge.resource)?)),
        "refused" => ro(|gauge, out| line(out, gauge.quota().refused())),
    };
}

impl Gauge {
    fn quota(&self) -> &Quota {
        self.registry.limits().quota(self.resource)
    }
}

fn set_max(gauge: &Gauge, input: &[u8]) -> Result {
    let max = core::str::from_utf8(trim_newline(input))
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(EINVAL)?;

    if gauge.quota().set_max(max) {
        Ok(())
    } else {
        Err(EINVAL)
    }
}
