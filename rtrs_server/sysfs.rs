// SPDX-License-Identifier: GPL-2.0

//! The operator's view: `/sys/class/rtrs-server/<session>/paths/<client@server>`.

use core::fmt;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    attribute::{
        attributes,
        expect_one,
        Group,
        Output,
        RemoveSelf, //
    },
    class::{
        Class,
        ClassDevice,
        Uevent, //
    },
    kobject::Dir,
    rcu::RcuCell,
    uuid::Uuid,
};
use rtrs_core::addr::Addr;

use crate::{
    logic::path_state::CloseReason,
    path::Path,
    session::Session,
    stats::STATS_FILES, //
};

/// The class, while the module is loaded.
static CLASS: RcuCell<Arc<Class>> = RcuCell::empty();

/// Removes the class when dropped. Sleeps until nothing is left in it.
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
    paths: Dir<Session>,
    device: ClassDevice<Session>,
}

impl SessionDir {
    /// Makes both; user space is not told yet. May sleep.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        let class = CLASS.get().ok_or(ENODEV)?;
        let device = ClassDevice::new(&class, session.cname(), &[&SESSION_FILES], session.clone())?;
        let paths = Dir::new(&device, c"paths", &[], session.clone())?;

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
    _dir: Dir<Path>,
}

impl PathDir {
    /// Makes it. May sleep.
    pub(crate) fn new(session: &SessionDir, path: &Arc<Path>) -> Result<Self> {
        let groups: [&'static Group<Path>; 2] = [&PATH_FILES, &STATS_FILES];
        let dir = Dir::new(&session.paths, path.cname(), &groups, path.clone())?;

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
        "uuid" => ro_root(|path, out| line::<&Uuid>(out, path.uuid())),
        "protocol_errors" => ro(|path, out| line(out, path.stats().violations())),
        "memory" => ro(|path, out| line(out, path.memory())),
        "src_addr" => ro(|path, out| match &path.addrs().src {
            Some(addr) => line(out, addr),
            None => Err(ENODEV),
        }),
        "dst_addr" => ro(|path, out| line::<&Addr>(out, &path.addrs().dst)),
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
        path.recon_cnt()
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
