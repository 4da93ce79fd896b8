// SPDX-License-Identifier: GPL-2.0

//! The operator's view: `/sys/class/rtrs-server/<session>/paths/<client@server>`, and
//! `/sys/module/rtrs_server/quotas`.

use core::fmt;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    attribute::{
        attributes,
        expect_one,
        expect_reset,
        trim_newline,
        Group,
        Output,
        RemoveSelf, //
    },
    class::{
        Class,
        ClassDevice,
        Uevent, //
    },
    compat::this_module,
    kobject::{
        KobjectDir,
        ModuleParent, //
    },
    rcu::RcuCell,
    uuid::Uuid,
};
use rtrs_core::addr::Addr;

use crate::{
    logic::{
        path_state::CloseReason,
        quota::{
            Quota,
            Resource, //
        },
    },
    path::Path,
    registry::Registry,
    session::Session,
    stats::Stats, //
};

/// The class, while the module is loaded.
static CLASS: RcuCell<Arc<Class>> = RcuCell::empty();

/// Removes the class when dropped. Sleeps until nothing is left in it: no session is being made then,
/// which would have a reference to the class of its own.
pub(crate) struct ClassGuard(());

impl Drop for ClassGuard {
    fn drop(&mut self) {
        drop(CLASS.replace(None));
    }
}

/// Makes the class.
pub(crate) fn init() -> Result<ClassGuard> {
    let class = Arc::new(Class::new(c"rtrs-server")?, GFP_KERNEL)?;

    // There was no class before.
    drop(CLASS.replace(Some(class)));
    Ok(ClassGuard(()))
}

/// A session's device with its directory of paths.
//
// Field order is teardown order.
pub(crate) struct SessionDir {
    paths: KobjectDir<Session>,
    device: ClassDevice<Session>,
}

impl SessionDir {
    /// Makes both; user space is not told yet. May sleep.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        let class = CLASS.get().ok_or(ENODEV)?;
        let device = ClassDevice::new(&class, session.cname(), &[&SESSION_FILES], session.clone())?;
        let paths = KobjectDir::new(&device, c"paths", &[], session.clone())?;

        Ok(Self { paths, device })
    }

    /// Tells user space once that the session is there. May sleep.
    pub(crate) fn announce(&self) {
        self.device.announce();
    }

    /// Tells user space about an event of the session. May sleep.
    pub(crate) fn uevent(&self, vars: &[&CStr]) -> Result {
        self.device.uevent(Uevent::Change, vars)
    }
}

/// A path's directory.
pub(crate) struct PathDir {
    _dir: KobjectDir<Path>,
}

impl PathDir {
    /// Makes it. May sleep.
    pub(crate) fn new(session: &SessionDir, path: &Arc<Path>) -> Result<Self> {
        let groups: [&'static Group<Path>; 2] = [&PATH_FILES, &STATS_FILES];
        let dir = KobjectDir::new(&session.paths, &path.cname, &groups, path.clone())?;

        Ok(Self { _dir: dir })
    }
}

attributes! {
    static SESSION_FILES: [Session] = {
        "state" => ro(|session, out| Ok(writeln!(out, "{}", session.health())?)),
        "peer_name" => ro(|session, out| line(out, session.name())),
        // A client that knows this and the uuid of a path can take over the session.
        "uuid" => ro_root(|session, out| line::<&Uuid>(out, session.uuid())),
        "protocol_errors" => ro(|session, out| line(out, session.violations())),
        "memory" => ro(|session, out| line(out, session.memory())),
        "linger" => ro(|session, out| line(out, session.linger_secs())),
    };
    static PATH_FILES: [Path] = {
        "state" => ro(|path, out| line(out, path.state())),
        "state_full" => ro(show_state_full),
        "uuid" => ro_root(|path, out| line::<&Uuid>(out, &path.uuid)),
        "protocol_errors" => ro(|path, out| line(out, path.stats.violations())),
        "memory" => ro(|path, out| line(out, path.memory())),
        "src_addr" => ro(|path, out| match &path.addrs.src {
            Some(addr) => line(out, addr),
            None => Err(ENODEV),
        }),
        "dst_addr" => ro(|path, out| line::<&Addr>(out, &path.addrs.dst)),
        "hca_name" => ro(|path, out| match path.hca() {
            Some((name, _)) => line(out, name.as_str()),
            None => Err(ENODEV),
        }),
        "hca_port" => ro(|path, out| match path.hca() {
            Some((_, port)) => line(out, port),
            None => Err(ENODEV),
        }),
        "disconnect" => rw_self(|_, out| line(out, "Usage: echo 1 > disconnect"), disconnect),
    };
    static STATS_FILES: [Path] in "stats" = {
        "rdma" => rw(
            |path, out| path.stats.show_rdma(out),
            |path, input| reset(path, input, Stats::reset_rdma),
        ),
        "wc_completion" => rw(
            |path, out| path.stats.show_completions(out),
            |path, input| reset(path, input, |stats| stats.polls.reset()),
        ),
        "reset_all" => rw(
            |_, out| Ok(writeln!(out, "echo 1 to reset all statistics")?),
            |path, input| reset(path, input, Stats::reset_all),
        ),
    };
    /// Files of a quota.
    static QUOTA_FILES: [Gauge] = {
        "max" => rw(|gauge, out| line(out, gauge.quota().max()), set_max),
        "current" => ro(|gauge, out| line(out, gauge.registry.usage(gauge.resource)?)),
        "refused" => ro(|gauge, out| line(out, gauge.quota().refused())),
    };
}

fn reset(path: &Path, input: &[u8], what: fn(&Stats)) -> Result {
    expect_reset(input)?;
    what(&path.stats);
    Ok(())
}

/// A file with one value.
pub(crate) fn line<T: fmt::Display>(out: &mut Output<'_>, value: T) -> Result {
    out.write_fmt(format_args!("{value}\n")).map_err(|_| EIO)
}

/// One `name: value` in a line.
fn show_state_full(path: &Path, out: &mut Output<'_>) -> Result {
    let secs = path.state_age() / 1_000_000_000;

    writeln!(out, "state: {}\nsince: {secs}", path.state().as_str())?;
    Ok(writeln!(
        out,
        "connections: {}\nattempt: {}",
        path.cons(),
        path.recon_cnt
    )?)
}

fn disconnect(path: &Arc<Path>, input: &[u8], file: RemoveSelf<'_>) -> Result {
    expect_one(input)?;
    // As the file is gone, the directory can be removed while this function runs.
    if file.remove() {
        path.close(CloseReason::Operator);
    }
    Ok(())
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
    _gauges: KVec<KobjectDir<Gauge>>,
    _top: KobjectDir<()>,
    _module: ModuleParent,
}

impl QuotaFiles {
    /// Makes the directory. May sleep.
    pub(crate) fn new(registry: &Arc<Registry>) -> Result<Self> {
        let module = ModuleParent::new(this_module!())?;
        let top = KobjectDir::new(&module, c"quotas", &[], Arc::new((), GFP_KERNEL)?)?;
        let mut gauges = KVec::with_capacity(Resource::COUNT, GFP_KERNEL)?;
        for resource in Resource::ALL {
            let gauge = Gauge {
                registry: registry.clone(),
                resource,
            };
            let gauge = Arc::new(gauge, GFP_KERNEL)?;
            gauges.push(
                KobjectDir::new(&top, dir_name(resource), &[&QUOTA_FILES], gauge)?,
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

impl Gauge {
    fn quota(&self) -> &Quota {
        self.registry.limits.quota(self.resource)
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
