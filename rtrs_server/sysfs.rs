// SPDX-License-Identifier: GPL-2.0

//! What an operator sees: `/sys/class/rtrs-server/<session>/paths/<client@server>`.

use core::fmt;
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

use rtrs_bindings::{
    attribute::{
        attributes,
        trim_newline,
        Output,
        RemoveSelf, //
    },
    class::{
        Class,
        ClassDevice, //
    },
    kobject::Dir,
    rcu::RcuCell,
};
use rtrs_core::addr::Addr;

use crate::{
    logic::path_state::CloseReason,
    path::{
        counter,
        Path, //
    },
    session::Session,
    show::Show, //
};

/// The class, for as long as the module is loaded.
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

    // Nothing was there.
    drop(CLASS.replace(Some(class)));
    Ok(ClassGuard(()))
}

/// A session's device with its directory of paths.
//
// Field order is teardown order.
pub(crate) struct SessionDir {
    paths: Dir<Session>,
    _device: ClassDevice<Session>,
}

impl SessionDir {
    /// Makes both. Sleeps.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        let class = CLASS.get().ok_or(ENODEV)?;
        let name = CString::try_from_fmt(fmt!("{}", session.name()))?;
        let device = ClassDevice::new(&class, &name, &[], session.clone())?;
        let paths = Dir::new(&device, c"paths", &[], session.clone())?;

        device.announce();
        Ok(Self {
            paths,
            _device: device,
        })
    }
}

/// A path's directory.
pub(crate) struct PathDir {
    _dir: Dir<Path>,
}

impl PathDir {
    /// Makes it. Sleeps.
    pub(crate) fn new(session: &SessionDir, path: &Arc<Path>) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{}", Show(path.addrs())))?;
        let dir = Dir::new(&session.paths, &name, &[&FILES, &STATS], path.clone())?;

        Ok(Self { _dir: dir })
    }
}

attributes! {
    /// Files of a path.
    static FILES: [Path] = {
        "state" => ro(|path, out| line(out, path.state())),
        "src_addr" => ro(|path, out| match &path.addrs().src {
            Some(addr) => line(out, addr),
            None => Err(ENODEV),
        }),
        "dst_addr" => ro(|path, out| line::<&Addr>(out, &path.addrs().dst)),
        "hca_name" => ro(|path, out| match path.hca() {
            Some((name, _)) => line(out, core::str::from_utf8(name.to_bytes()).unwrap_or("?")),
            None => Err(ENODEV),
        }),
        "hca_port" => ro(|path, out| match path.hca() {
            Some((_, port)) => line(out, port),
            None => Err(ENODEV),
        }),
        "disconnect" => rw_self(|_, out| line(out, "Usage: echo 1 > disconnect"), disconnect),
    };
    /// Statistics of a path.
    static STATS: [Path] in "stats" = {
        "rdma" => rw(show_rdma, reset_rdma),
    };
}

fn line<T: fmt::Display>(out: &mut Output<'_>, value: T) -> Result {
    out.write_fmt(format_args!("{value}\n")).map_err(|_| EIO)
}

fn disconnect(path: &Arc<Path>, input: &[u8], file: RemoveSelf<'_>) -> Result {
    if trim_newline(input) != b"1" {
        return Err(EINVAL);
    }
    // As the file is gone the directory can be removed while we are in here.
    if file.remove() {
        path.close(CloseReason::Operator);
    }
    Ok(())
}

fn show_rdma(path: &Path, out: &mut Output<'_>) -> Result {
    let sum = |index| path.counters().sum(index);
    // The first four are what the C implementation has; the fifth is documented.
    let inflight = sum(counter::STARTED).saturating_sub(sum(counter::DONE));

    line(
        out,
        format_args!(
            "{} {} {} {} {}",
            sum(counter::READS),
            sum(counter::READ_BYTES),
            sum(counter::WRITES),
            sum(counter::WRITE_BYTES),
            inflight
        ),
    )
}

fn reset_rdma(path: &Path, input: &[u8]) -> Result {
    match trim_newline(input) {
        b"0" | b"1" => (),
        _ => return Err(EINVAL),
    }
    for index in [
        counter::READS,
        counter::READ_BYTES,
        counter::WRITES,
        counter::WRITE_BYTES,
    ] {
        path.counters().reset(index);
    }
    Ok(())
}
