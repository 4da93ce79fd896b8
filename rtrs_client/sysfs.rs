// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rtrs-client`.
//!
//! Every file is described in `Documentation/ABI/sysfs-class-rtrs-client`.
//!
//! # Context
//!
//! Files are read and written by processes and may sleep. sysfs waits for the functions below
//! before it removes a directory, so their arguments stay valid.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::{
    attribute::{
        attributes,
        expect_one,
        expect_reset,
        Output,
        RemoveSelf, //
    },
    class::{
        Class,
        ClassDevice,
        Uevent, //
    },
    kobject::KobjectDir,
    time, //
};
use rtrs_core::{
    addr::Addr,
    sockaddr, //
};

use crate::{
    logic::{
        path_state::State,
        policy::Policy, //
    },
    params::FailAfter,
    path::Path,
    session::{
        Session,
        Tunable, //
    },
    stats::Stats,
};

/// Bounds of `max_reconnect_attempts`; -1 means no limit.
const ATTEMPTS: core::ops::RangeInclusive<i32> = -1..=9999;

attributes! {
    static SESSION_FILES: [Session] = {
        "max_reconnect_attempts" => rw(show_attempts, store_attempts),
        "mpath_policy" => rw(show_policy, store_policy),
        "mp_policy" => rw(show_policy, store_policy),
        "add_path" => rw_self(show_add_path, store_add_path),
        "state" => ro(|session, out| Ok(writeln!(out, "{}", session.health())?)),
        "heartbeat_interval_ms" => rw(
            |session, out| show_tunable(out, &session.settings.heartbeat_interval_ms),
            |session, buf| store_tunable(buf, &session.settings.heartbeat_interval_ms),
        ),
        "heartbeat_limit" => rw(
            |session, out| show_tunable(out, &session.settings.heartbeat_limit),
            |session, buf| store_tunable(buf, &session.settings.heartbeat_limit),
        ),
        "silent_path_ms" => rw_self(
            |session, out| show_tunable(out, &session.settings.silent_path_ms),
            store_silent_path,
        ),
        "request_timeout_ms" => rw(
            |session, out| show_tunable(out, &session.settings.request_timeout_ms),
            |session, buf| store_tunable(buf, &session.settings.request_timeout_ms),
        ),
        "ack_timeout" => rw(
            |session, out| show_tunable(out, &session.settings.ack_timeout),
            |session, buf| store_tunable(buf, &session.settings.ack_timeout),
        ),
        "fast_io_fail_tmo" => rw_self(show_fail_after, store_fail_after),
    };
    static PATH_FILES: [Path] = {
        "state" => ro(show_state),
        "state_full" => ro(show_state_full),
        "src_addr" => ro(|path, out| show_addr(out, path.src_addr())),
        "dst_addr" => ro(|path, out| show_addr(out, path.dst_addr())),
        "hca_name" => ro(show_hca_name),
        "hca_port" => ro(show_hca_port),
        "cur_latency" => ro(|path, out| show_ns(out, path.stats.heartbeat_ns())),
        "request_latency" => ro(|path, out| show_ns(out, path.latency())),
        "reconnect" => rw_self(show_reconnect, store_reconnect),
        "disconnect" => rw_self(show_disconnect, store_disconnect),
        "remove_path" => rw_self(show_remove, store_remove),
    };
    /// Writing `0`, as documented, or `1`, as the C modules want it, resets the contents of a file.
    static STATS_FILES: [Path] in "stats" = {
        "rdma" => rw(
            |path, out| path.stats.show_rdma(path.inflight(), out),
            |path, buf| reset(path, buf, Stats::reset_rdma),
        ),
        "reconnects" => rw(
            |path, out| path.stats.show_reconnects(out),
            |path, buf| reset(path, buf, Stats::reset_reconnects),
        ),
        "cpu_migration" => rw(
            |path, out| path.stats.show_migration(out),
            |path, buf| reset(path, buf, Stats::reset_migration),
        ),
        "cpu_migration_from" => rw(
            |path, out| path.stats.show_migration_from(out),
            |path, buf| reset(path, buf, Stats::reset_migration),
        ),
        "cpu_migration_to" => rw(
            |path, out| path.stats.show_migration_to(out),
            |path, buf| reset(path, buf, Stats::reset_migration),
        ),
        "sg_entries" => rw(
            |path, out| path.stats.show_sg(out),
            |path, buf| reset(path, buf, Stats::reset_sg),
        ),
        "rdma_lat" => rw(
            |path, out| path.stats.show_ms(out),
            |path, buf| reset(path, buf, Stats::reset_latency),
        ),
        "rdma_lat_us" => rw(
            |path, out| path.stats.show_us(out),
            |path, buf| reset(path, buf, Stats::reset_latency),
        ),
        "wc_completion" => rw(
            |path, out| path.stats.show_completions(out),
            |path, buf| reset(path, buf, |stats| stats.polls.reset()),
        ),
        "reset_all" => rw(
            |_, out| Ok(writeln!(out, "echo 1 to reset all statistics")?),
            |path, buf| reset(path, buf, Stats::reset_all),
        ),
    };
}

/// The directory of a session.
pub(crate) struct SessionFiles {
    // Dropped first, since it is inside the device's directory.
    paths: KobjectDir<()>,
    device: ClassDevice<Session>,
}

impl SessionFiles {
    /// Makes the directory; user space is not told yet. May sleep.
    pub(crate) fn new(class: &Class, session: &Arc<Session>) -> Result<Self> {
        let device = ClassDevice::new(
            class,
            session.name().as_cstr(),
            &[&SESSION_FILES],
            session.clone(),
        )?;
        let paths = KobjectDir::new(&device, c"paths", &[], Arc::new((), GFP_KERNEL)?)?;
        Ok(Self { paths, device })
    }

    /// Tells user space that the session is there.
    pub(crate) fn announce(&self) {
        self.device.announce();
    }

    /// Tells user space about an event of the session. May sleep.
    pub(crate) fn uevent(&self, vars: &[&CStr]) -> Result {
        self.device.uevent(Uevent::Change, vars)
    }
}

/// The directory of a path.
pub(crate) struct PathFiles {
    _dir: KobjectDir<Path>,
}

impl PathFiles {
    /// Makes the directory of a path that has its name. May sleep.
    pub(crate) fn new(session: &SessionFiles, path: &Arc<Path>) -> Result<Self> {
        Ok(Self {
            _dir: KobjectDir::new(
                &session.paths,
                path.cached_name(),
                &[&PATH_FILES, &STATS_FILES],
                path.clone(),
            )?,
        })
    }
}

fn reset(path: &Path, buf: &[u8], what: fn(&Stats)) -> Result {
    expect_reset(buf)?;
    what(&path.stats);
    Ok(())
}

/// Returns the written bytes as text, without the newline at the end.
fn text(buf: &[u8]) -> Result<&str> {
    let buf = buf.strip_suffix(b"\n").unwrap_or(buf);
    core::str::from_utf8(buf).map_err(|_| EINVAL)
}

fn show_attempts(session: &Session, out: &mut Output<'_>) -> Result {
    Ok(writeln!(
        out,
        "{}",
        session.settings.max_reconnect_attempts()
    )?)
}

fn store_attempts(session: &Session, buf: &[u8]) -> Result {
    let attempts: i32 = text(buf)?.parse().map_err(|_| EINVAL)?;
    if !ATTEMPTS.contains(&attempts) {
        return Err(EINVAL);
    }
    session.settings.set_max_reconnect_attempts(attempts);
    Ok(())
}

fn show_fail_after(session: &Session, out: &mut Output<'_>) -> Result {
    match session.fail_after() {
        FailAfter::Secs(secs) => Ok(writeln!(out, "{secs}")?),
        FailAfter::Never => Ok(writeln!(out, "off")?),
    }
}

fn store_fail_after(session: &Arc<Session>, buf: &[u8], _: RemoveSelf<'_>) -> Result {
    session.set_fail_after(FailAfter::parse(text(buf)?).ok_or(EINVAL)?);
    Ok(())
}

fn show_tunable(out: &mut Output<'_>, tunable: &Tunable) -> Result {
    Ok(writeln!(out, "{}", tunable.get())?)
}

fn store_tunable(buf: &[u8], tunable: &Tunable) -> Result {
    tunable.set(text(buf)?.parse().map_err(|_| EINVAL)?)
}

fn store_silent_path(session: &Arc<Session>, buf: &[u8], _: RemoveSelf<'_>) -> Result {
    store_tunable(buf, &session.settings.silent_path_ms)?;
    session.restart_watch();
    Ok(())
}

fn show_policy(session: &Session, out: &mut Output<'_>) -> Result {
    Ok(writeln!(out, "{}", session.settings.policy())?)
}

fn store_policy(session: &Session, buf: &[u8]) -> Result {
    let policy = Policy::parse(buf).map_err(|_| EINVAL)?;
    session.settings.set_policy(policy);
    Ok(())
}

fn show_add_path(_: &Session, out: &mut Output<'_>) -> Result {
    Ok(writeln!(
        out,
        "Usage: echo [<source addr>@]<destination addr> > add_path\n\n\
         *addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]"
    )?)
}

fn store_add_path(session: &Arc<Session>, buf: &[u8], _: RemoveSelf<'_>) -> Result {
    let (src, dst) = sockaddr::parse_pair(buf, session.options.port)?;
    session.add_path(src, dst).map(drop)
}

fn show_state(path: &Path, out: &mut Output<'_>) -> Result {
    let state = match path.status(|s| s.machine.state()) {
        State::Connected => "connected",
        _ => "disconnected",
    };
    Ok(writeln!(out, "{state}")?)
}

/// One `name: value` in a line; the first word of `last_error` is an errno.
fn show_state_full(path: &Path, out: &mut Output<'_>) -> Result {
    let (state, attempts, link, last_error, since_ns) = path.status(|s| {
        let m = &s.machine;
        (m.state(), m.attempts(), m.link(), s.last_error, s.since_ns)
    });
    let secs = time::now_ns().saturating_sub(since_ns) / 1_000_000_000;
    writeln!(out, "state: {state}\nsince: {secs}")?;
    writeln!(out, "attempts: {attempts}\nlink: {link}")?;
    writeln!(out, "trial: {}", path.trial_secs())?;
    match last_error {
        Some((errno, why)) => Ok(writeln!(out, "last_error: {errno} {why}")?),
        None => Ok(writeln!(out, "last_error: 0 none")?),
    }
}

fn show_addr(out: &mut Output<'_>, addr: Option<Addr>) -> Result {
    match addr {
        Some(addr) => Ok(writeln!(out, "{addr}")?),
        None => Ok(writeln!(out)?),
    }
}

fn show_hca_name(path: &Path, out: &mut Output<'_>) -> Result {
    let name = path.device_name();
    Ok(writeln!(
        out,
        "{}",
        name.as_ref().map_or("", |name| name.as_str())
    )?)
}

fn show_hca_port(path: &Path, out: &mut Output<'_>) -> Result {
    Ok(writeln!(out, "{}", path.via().map_or(0, |via| via.port))?)
}

fn show_ns(out: &mut Output<'_>, ns: u64) -> Result {
    Ok(writeln!(out, "{ns} ns")?)
}

fn show_reconnect(_: &Path, out: &mut Output<'_>) -> Result {
    Ok(writeln!(out, "Usage: echo 1 > reconnect")?)
}

fn store_reconnect(path: &Arc<Path>, buf: &[u8], _: RemoveSelf<'_>) -> Result {
    expect_one(buf)?;
    path.reconnect()
}

fn show_disconnect(_: &Path, out: &mut Output<'_>) -> Result {
    Ok(writeln!(out, "Usage: echo 1 > disconnect")?)
}

fn store_disconnect(path: &Arc<Path>, buf: &[u8], _: RemoveSelf<'_>) -> Result {
    expect_one(buf)?;
    path.disconnect()
}

fn show_remove(_: &Path, out: &mut Output<'_>) -> Result {
    Ok(writeln!(out, "Usage: echo 1 > remove_path")?)
}

fn store_remove(path: &Arc<Path>, buf: &[u8], this: RemoveSelf<'_>) -> Result {
    expect_one(buf)?;
    if this.remove() {
        path.session.remove_path(path);
    }
    Ok(())
}
