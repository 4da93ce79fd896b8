// SPDX-License-Identifier: GPL-2.0

//! The files, the commands, and the objects that commands make.
//!
//! `command` takes one command per `write(2)`, which returns when it is done, with its errno.
//! Several can be written at the same time. `result` has a line for the last result of each tag,
//! `TAG: ok ...` or `TAG: error -90 ...`; a tag is given with `tag=`, or is the name of the session.
//! `stats` has the counts since the module was loaded.
//!
//! | command | |
//! |---|---|
//! | `serve port= refuse=1 depth= chunk= ai= disk=` | opens a server; with `refuse` clients are turned away, with `disk` it is a disk of so many sectors |
//! | `unserve port=` | closes it |
//! | `release port=` | answers the requests that the server holds |
//! | `open name= path= path= port= delay= attempts=` | opens a session |
//! | `close name=` | drops it, or leaves that to a run that uses it |
//! | `limits name=` | its limits |
//! | `io name= ...` | makes requests, see [`Plan`] |
//! | `busy name= delay=` | uses a permit twice |
//! | `shared name= delay=` | uses data twice |
//! | `foreign name= other=` | uses a permit of another session |
//! | `permits name= hold=` | takes all permits |
//! | `door port= slow=1` | opens a [`Door`], at which a request to connect waits |
//! | `decide port= how=` | decides about it: `drop`, `reject`, `accept`, or `turn-away` if it is slow |
//! | `shut port=` | closes the door |
//! | `plant what=` | makes a fault that a checker of the kernel has to find, see [`planted`] |
//!
//! # Locking
//!
//! The mutexes protect lists while something is looked up; none is held over a long sleep.

use kernel::{
    fmt, new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta,
    uaccess::UserSliceReader,
};
use rtrs_bindings::errno::EALREADY;
use rtrs_client::api::{
    Config,
    Session, //
};
use rtrs_server::api::ServerConfig;

use crate::{
    args::Args,
    disk::Disk,
    door::Door,
    plan::Plan,
    planted, probes,
    run::{
        self,
        Totals, //
    },
    store::{
        Seen,
        Serving, //
    },
};

/// Maximum length of a command in bytes.
const MAX_COMMAND: usize = 4096;
/// Maximum number of results that are kept.
const MAX_RESULTS: usize = 256;
/// Maximum number of paths of a session.
const MAX_PATHS: usize = 8;

/// A session and its name.
struct Named {
    name: CString,
    session: Arc<Session>,
}

/// The last result of a tag.
struct Outcome {
    tag: CString,
    text: CString,
}

/// All state of the module.
//
// Field order is teardown order: sessions before the servers they may be connected to.
#[pin_data]
pub(crate) struct Control {
    #[pin]
    sessions: Mutex<KVec<Named>>,
    #[pin]
    servers: Mutex<KVec<Serving>>,
    #[pin]
    doors: Mutex<KVec<Arc<Door>>>,
    #[pin]
    outcomes: Mutex<KVec<Outcome>>,
    seen: Arc<Seen>,
    totals: Arc<Totals>,
}

impl Control {
    /// Makes an empty state.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            sessions <- new_mutex!(KVec::new(), "rtrs_test_sessions"),
            servers <- new_mutex!(KVec::new(), "rtrs_test_servers"),
            doors <- new_mutex!(KVec::new(), "rtrs_test_doors"),
            outcomes <- new_mutex!(KVec::new(), "rtrs_test_outcomes"),
            seen: Arc::new(Seen::default(), GFP_KERNEL)?,
            totals: Arc::new(Totals::default(), GFP_KERNEL)?,
        })
    }

    //
    // Files
    //

    /// Runs a command that was written to the file.
    pub(crate) fn command(&self, reader: &mut UserSliceReader) -> Result {
        if reader.len() > MAX_COMMAND {
            return Err(E2BIG);
        }
        let mut line = KVec::from_elem(0, reader.len(), GFP_KERNEL)?;
        reader.read_slice(&mut line)?;
        let line = core::str::from_utf8(&line).map_err(|_| EINVAL)?;
        let args = Args::new(line)?;
        let (result, text) = match self.dispatch(&args) {
            Ok((text, result)) => (result, text),
            Err(e) => (Err(e), CString::try_from_fmt(fmt!("{}", args.verb()))?),
        };
        let text = match result {
            Ok(()) => CString::try_from_fmt(fmt!("ok {}", utf8(&text)))?,
            Err(e) => CString::try_from_fmt(fmt!("error {} {}", e.to_errno(), utf8(&text)))?,
        };
        self.file(args.tag(), text)?;
        result
    }

    /// Keeps a result.
    fn file(&self, tag: &str, text: CString) -> Result {
        let mut outcomes = self.outcomes.lock();
        if let Some(old) = outcomes
            .iter_mut()
            .find(|o| o.tag.to_bytes() == tag.as_bytes())
        {
            old.text = text;
            return Ok(());
        }
        if outcomes.len() >= MAX_RESULTS {
            return Err(ENOSPC);
        }
        let tag = CString::try_from_fmt(fmt!("{tag}"))?;
        Ok(outcomes.push(Outcome { tag, text }, GFP_KERNEL)?)
    }

    /// The file `result`.
    pub(crate) fn show_results(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcomes
            .lock()
            .iter()
            .try_for_each(|o| writeln!(f, "{}: {}", utf8(&o.tag), utf8(&o.text)))
    }

    /// The file `stats`.
    pub(crate) fn show_stats(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (totals, seen) = (&self.totals, &self.seen);
        writeln!(f, "sessions {}", self.sessions.lock().len())?;
        writeln!(f, "submitted {}", totals.submitted.get())?;
        writeln!(f, "completed {}", totals.told.get())?;
        writeln!(f, "doubled {}", totals.doubled.get())?;
        writeln!(f, "in_flight {}", totals.in_flight.get())?;
        writeln!(f, "client_disconnected {}", totals.disconnected.get())?;
        writeln!(f, "client_reconnected {}", totals.reconnected.get())?;
        writeln!(f, "server_writes {}", seen.writes.get())?;
        writeln!(f, "server_reads {}", seen.reads.get())?;
        writeln!(f, "server_corrupt {}", seen.corrupt.get())?;
        writeln!(f, "server_ups {}", seen.ups.get())?;
        writeln!(f, "server_downs {}", seen.downs.get())?;
        for server in self.servers.lock().iter() {
            let answers = server.answers();
            writeln!(f, "server_held:{} {}", server.port(), answers.waiting())?;
            writeln!(f, "server_asleep:{} {}", server.port(), answers.asleep())?;
        }
        for door in self.doors.lock().iter() {
            writeln!(f, "waiting:{} {}", door.port(), u32::from(door.is_taken()))?;
        }
        Ok(())
    }

    //
    // Commands
    //

    fn dispatch(&self, args: &Args<'_>) -> Result<(CString, Result)> {
        let text = match args.verb() {
            "io" => return self.io(args),
            "serve" => self.serve(args)?,
            "unserve" => self.unserve(args)?,
            "release" => self.release(args)?,
            "open" => self.open(args)?,
            "close" => self.close(args)?,
            "limits" => self.limits(args)?,
            "busy" => {
                args.only(&["name", "tag", "delay"])?;
                let session = self.session(args.need("name")?)?;
                probes::busy_permit(&session, args.number("delay", 200)?)?;
                CString::try_from_fmt(fmt!("busy"))?
            }
            "shared" => {
                args.only(&["name", "tag", "delay"])?;
                let session = self.session(args.need("name")?)?;
                probes::busy_data(&session, args.number("delay", 200)?)?;
                CString::try_from_fmt(fmt!("shared"))?
            }
            "foreign" => {
                args.only(&["name", "tag", "other"])?;
                let session = self.session(args.need("name")?)?;
                let other = self.session(args.need("other")?)?;
                probes::foreign_permit(&session, &other)?;
                CString::try_from_fmt(fmt!("foreign"))?
            }
            "permits" => {
                args.only(&["name", "tag", "hold"])?;
                let session = self.session(args.need("name")?)?;
                let n = probes::all_permits(&session, args.number("hold", 0)?)?;
                CString::try_from_fmt(fmt!("permits={n}"))?
            }
            "door" => {
                args.only(&["port", "slow", "tag"])?;
                let door = Door::new(args.need_number("port")?, args.flag("slow")?)?;
                let door = Arc::new(door, GFP_KERNEL)?;
                let pushed = self.doors.lock().push(door, GFP_KERNEL);
                pushed?;
                CString::try_from_fmt(fmt!("door"))?
            }
            "decide" => {
                args.only(&["port", "how", "tag"])?;
                self.door(args)?.decide(args.need("how")?)?;
                CString::try_from_fmt(fmt!("decided"))?
            }
            "shut" => {
                args.only(&["port", "tag"])?;
                let port = args.need_number::<u16>("port")?;
                let door = {
                    let mut doors = self.doors.lock();
                    let index = doors.iter().position(|d| d.port() == port).ok_or(ENOENT)?;
                    doors.remove(index)
                };
                drop(door);
                CString::try_from_fmt(fmt!("shut"))?
            }
            "plant" => {
                args.only(&["what", "tag"])?;
                planted::plant(args.need("what")?)?;
                CString::try_from_fmt(fmt!("planted"))?
            }
            verb => {
                pr_err!("no such command: {}\n", verb);
                return Err(EINVAL);
            }
        };
        Ok((text, Ok(())))
    }

    fn io(&self, args: &Args<'_>) -> Result<(CString, Result)> {
        args.only(Plan::KEYS)?;
        let name = args.need("name")?;
        let forget = || drop(self.forget(name));
        run::execute(
            Plan::new(args)?,
            self.session(name)?,
            self.totals.clone(),
            forget,
        )
    }

    fn session(&self, name: &str) -> Result<Arc<Session>> {
        let sessions = self.sessions.lock();
        let named = sessions.iter().find(|n| n.is(name)).ok_or(ENOENT)?;
        Ok(named.session.clone())
    }

    fn door(&self, args: &Args<'_>) -> Result<Arc<Door>> {
        let port = args.need_number::<u16>("port")?;
        let doors = self.doors.lock();
        let door = doors.iter().find(|d| d.port() == port).ok_or(ENOENT)?;
        Ok(door.clone())
    }

    fn forget(&self, name: &str) -> Option<Named> {
        let mut sessions = self.sessions.lock();
        let index = sessions.iter().position(|n| n.is(name))?;
        sessions.remove(index).ok()
    }

    fn open(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&["name", "tag", "path", "port", "delay", "attempts", "poll"])?;
        let mut paths = KVec::with_capacity(MAX_PATHS, GFP_KERNEL)?;
        for path in args.all("path") {
            paths.push_within_capacity(path).map_err(|_| E2BIG)?;
        }
        let name = args.need("name")?;
        let config = Config {
            name,
            port: args.number("port", 1234)?,
            reconnect_delay_sec: args.number("delay", 1)?,
            max_reconnect_attempts: args.number("attempts", -1)?,
            poll_queues: args.number("poll", 0)?,
        };
        let session = Session::open(config, &paths, Some(self.totals.clone()))?;
        let session = Arc::new(session, GFP_KERNEL)?;
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        // Outside of the mutex: without memory the session is dropped here.
        let named = Named { name, session };
        let pushed = self.sessions.lock().push(named, GFP_KERNEL);
        pushed?;
        CString::try_from_fmt(fmt!("open"))
    }

    fn close(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&["name", "tag"])?;
        drop(self.forget(args.need("name")?).ok_or(ENOENT)?);
        CString::try_from_fmt(fmt!("close"))
    }

    fn limits(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&["name", "tag"])?;
        let session = self.session(args.need("name")?)?;
        let limits = session.limits().ok_or(EAGAIN)?;
        CString::try_from_fmt(fmt!(
            "queue_depth={} max_io_size={} max_segments={} max_hdr_size={} connected={} failing={}",
            limits.queue_depth,
            limits.max_io_size,
            limits.max_segments,
            limits.max_hdr_size,
            u32::from(session.is_connected()),
            u32::from(session.is_failing()),
        ))
    }

    fn serve(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&[
            "port", "tag", "refuse", "depth", "chunk", "ai", "disk", "farewell",
        ])?;
        let number = |key| {
            args.get(key)
                .map(|_| args.number::<u32>(key, 0))
                .transpose()
        };
        let depth = number("depth")?.map(u16::try_from).transpose()?;
        let ai = args.get("ai").map(|_| args.flag("ai")).transpose()?;
        let config = ServerConfig {
            port: args.number("port", 1234)?,
            queue_depth: depth,
            chunk_size: number("chunk")?,
            always_invalidate: ai,
        };
        let disk = number("disk")?.map(Disk::new).transpose()?;
        let refuse = args.flag("refuse")?;
        let farewell = Delta::from_millis(args.number("farewell", 0)?);
        let serving = Serving::new(&config, refuse, farewell, disk, self.seen.clone())?;
        let pushed = self.servers.lock().push(serving, GFP_KERNEL);
        pushed?;
        CString::try_from_fmt(fmt!("serve"))
    }

    /// Closes a server. It stays listed until that is done, so that held requests can be released.
    fn unserve(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&["port", "tag"])?;
        let port = args.number("port", 1234)?;
        let server = {
            let mut servers = self.servers.lock();
            let serving = servers.iter_mut().find(|s| s.port() == port);
            serving.ok_or(ENOENT)?.take_server().ok_or(EALREADY)?
        };
        drop(server);
        let serving = {
            let mut servers = self.servers.lock();
            let index = servers.iter().position(|s| s.port() == port);
            index.and_then(|index| servers.remove(index).ok())
        };
        drop(serving);
        CString::try_from_fmt(fmt!("unserve"))
    }

    fn release(&self, args: &Args<'_>) -> Result<CString> {
        args.only(&["port", "tag"])?;
        let port = args.number("port", 1234)?;
        let answers = {
            let servers = self.servers.lock();
            let serving = servers.iter().find(|s| s.port() == port);
            serving.ok_or(ENOENT)?.answers().clone()
        };
        let held = answers.waiting();
        answers.release();
        CString::try_from_fmt(fmt!("released={held}"))
    }
}

impl Named {
    fn is(&self, name: &str) -> bool {
        self.name.to_bytes() == name.as_bytes()
    }
}

/// A string that was made from UTF-8.
fn utf8(text: &CStr) -> &str {
    text.to_str().unwrap_or("?")
}
