// SPDX-License-Identifier: GPL-2.0

//! `rtrs-peer`: speaks RTRS from user space, over librdmacm and libibverbs, and can break the
//! protocol: as a server that the client under test connects to, or as a client of the server under
//! test. The result of a case is one line of JSON.

mod attacks;
mod client;
mod fuzz;
mod half_open;
mod report;
mod rogue;
mod server;
mod verbs;

/// The protocol as the modules have it.
#[allow(dead_code, unreachable_pub, unused_imports, clippy::all)]
#[path = "../../../rtrs_core"]
mod source {
    pub mod proto;
}
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../host/shim/atomic.rs"]
mod atomic;

use source::proto;

use std::{
    fs,
    io::Write,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, Context, Result};
use clap::{Args, Parser, Subcommand};

use report::Report;

#[derive(Parser)]
#[command(
    version,
    about,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
struct Cli {
    /// List the cases and what they do
    #[arg(long)]
    list: bool,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// Be a server that is not as it should be
    Server(ServerArgs),
    /// Be a client that is not as it should be
    Client(ClientArgs),
    /// Be many clients that do random things
    Fuzz(FuzzArgs),
    /// Be a server that serves, until it does not
    Rogue(RogueArgs),
    /// Be very many clients that never go on
    HalfOpen(HalfOpenArgs),
}

#[derive(Args)]
struct Common {
    /// Address to listen at, or to connect to
    #[arg(long)]
    addr: IpAddr,

    /// Port to listen at, or to connect to
    #[arg(long, default_value_t = proto::DEFAULT_PORT)]
    port: u16,

    /// What to do, see --list; a client can do several in turn
    #[arg(long, value_delimiter = ',', required = true)]
    case: Vec<String>,
}

impl Common {
    fn addr(&self) -> SocketAddr {
        SocketAddr::new(self.addr, self.port)
    }
}

#[derive(Args)]
struct ServerArgs {
    #[command(flatten)]
    common: Common,

    /// How many times clients are to come before it ends
    #[arg(long, default_value_t = 1)]
    count: u32,

    /// How long it all may take, in seconds
    #[arg(long, default_value_t = 60)]
    timeout: u64,

    /// File to make when clients may come
    #[arg(long)]
    ready: Option<PathBuf>,
}

#[derive(Args)]
struct ClientArgs {
    #[command(flatten)]
    common: Common,

    /// Begin of the random numbers, which identify the client
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How long the server may take to answer or to end a path, in seconds
    #[arg(long, default_value_t = 10)]
    patience: u64,

    /// Address to come from
    #[arg(long)]
    from: Option<IpAddr>,

    /// Another address, for the cases that need one
    #[arg(long)]
    other: Option<IpAddr>,

    /// Name of the session of an honest client
    #[arg(long, default_value = "honest")]
    victim: String,

    /// File with a number; what it grows by is part of the result of each case
    #[arg(long)]
    counter: Option<PathBuf>,

    /// File that is told which case begins, as /dev/kmsg
    #[arg(long)]
    mark: Option<PathBuf>,

    /// How long each case takes at least, in milliseconds: logs limit their rate
    #[arg(long, default_value_t = 0)]
    pace: u64,
}

#[derive(Args)]
struct FuzzArgs {
    /// Address to connect to
    #[arg(long)]
    addr: IpAddr,

    /// Port to connect to
    #[arg(long, default_value_t = proto::DEFAULT_PORT)]
    port: u16,

    /// Begin of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many sessions
    #[arg(long, default_value_t = 1000)]
    sessions: u64,

    /// The first session
    #[arg(long, default_value_t = 0)]
    first: u64,

    /// Only the session of that number
    #[arg(long)]
    only: Option<u64>,

    /// Begin no session after so many seconds
    #[arg(long)]
    seconds: Option<u64>,

    /// How many sessions at a time
    #[arg(long, default_value_t = 6)]
    workers: usize,

    /// How long the server may take for anything, in seconds
    #[arg(long, default_value_t = 30)]
    patience: u64,

    /// Tell what each session does
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
struct RogueArgs {
    /// Address to listen at
    #[arg(long)]
    addr: IpAddr,

    /// Port to listen at
    #[arg(long, default_value_t = proto::DEFAULT_PORT)]
    port: u16,

    /// What to do, see --list; without it something random on each path
    #[arg(long)]
    case: Option<String>,

    /// Let chunks keep their keys: answers are writes of a value then
    #[arg(long)]
    old_keys: bool,

    /// Say that reads may be answered by the message that invalidates their key, with --old-keys
    #[arg(long)]
    inval_answers: bool,

    /// Begin of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Number of the first random path
    #[arg(long, default_value_t = 0)]
    first: u64,

    /// How many random paths there are; all after them are served
    #[arg(long, default_value_t = u64::MAX)]
    paths: u64,

    /// How long it all may take, in seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,

    /// File to make when clients may come
    #[arg(long)]
    ready: Option<PathBuf>,

    /// File that tells to serve all, once it is there
    #[arg(long)]
    honest: Option<PathBuf>,

    /// Tell what each path meets with
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
struct HalfOpenArgs {
    /// Address to connect to
    #[arg(long)]
    addr: IpAddr,

    /// Port to connect to
    #[arg(long, default_value_t = proto::DEFAULT_PORT)]
    port: u16,

    /// Begin of the random numbers, which identify the clients
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many clients
    #[arg(long, default_value_t = 1000)]
    count: u64,

    /// Address the first one comes from
    #[arg(long)]
    from: Option<IpAddr>,

    /// How many connections each announces
    #[arg(long, default_value_t = half_open::CONS)]
    cons: u16,

    /// Milliseconds between two that do not begin at the same time
    #[arg(long, default_value_t = 0)]
    pause: u64,

    /// From how many addresses, from that one on, they are to come in turn
    #[arg(long, default_value_t = 1)]
    sources: u32,

    /// How many begin at a time
    #[arg(long, default_value_t = 4)]
    workers: u64,

    /// How long the server may keep them, in seconds
    #[arg(long, default_value_t = 45)]
    deadline: u64,

    /// File that has to be there before any of them goes
    #[arg(long)]
    hold: Option<PathBuf>,
}

/// A file with a number, and its earlier value.
struct Counter<'a> {
    file: &'a Path,
    was: u64,
}

impl<'a> Counter<'a> {
    fn read(file: &'a Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let was = text
            .trim()
            .parse()
            .with_context(|| format!("no number in {}", file.display()))?;
        Ok(Self { file, was })
    }

    /// The growth of the number. The counter may lag a little.
    fn growth(&self) -> Result<u64> {
        const TRIES: u32 = 5;

        for _ in 0..TRIES {
            let now = Self::read(self.file)?.was;
            if now != self.was {
                return Ok(now.saturating_sub(self.was));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(0)
    }
}

/// Writes to `file` that a case begins, in one write.
fn mark(file: &Path, case: &str) -> Result<()> {
    fs::OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut f| f.write_all(format!("rtrs-test: attack {case} begins\n").as_bytes()))
        .with_context(|| format!("cannot write to {}", file.display()))
}

fn list() {
    for case in server::CASES {
        println!("server  {:<24} {}", case.name, case.about);
    }
    for case in rogue::NAMED {
        println!("rogue   {:<24} {}", case.name, case.about);
    }
    for case in attacks::cases() {
        println!("client  {:<24} {}", case.name, case.about);
    }
}

/// Runs the requested cases, and prints the result of each; returns whether all are good.
fn run(role: Role) -> Result<bool> {
    let mut ok = true;
    let mut tell = |report: Report| {
        println!("{}", report.to_json());
        ok &= report.is_ok();
    };
    match role {
        Role::Server(args) => {
            let [case] = args.common.case.as_slice() else {
                bail!("a server does one thing at a time");
            };
            tell(server::run(&server::Job {
                addr: args.common.addr(),
                case,
                count: args.count,
                timeout: Duration::from_secs(args.timeout),
                ready: args.ready.as_deref(),
            })?);
        }
        Role::Client(args) => {
            for case in &args.common.case {
                let end = Instant::now() + Duration::from_millis(args.pace);
                args.mark.as_deref().map_or(Ok(()), |f| mark(f, case))?;
                let counter = args.counter.as_deref().map(Counter::read).transpose()?;
                let mut report = attacks::run(&attacks::Job {
                    addr: args.common.addr(),
                    from: args.from,
                    other: args.other,
                    case,
                    seed: args.seed,
                    patience: Duration::from_secs(args.patience),
                    victim: &args.victim,
                })?;
                if let Some(counter) = counter {
                    report.fact("counted", counter.growth()?);
                }
                tell(report);
                thread::sleep(end.saturating_duration_since(Instant::now()));
            }
        }
        Role::Fuzz(args) => {
            ok = fuzz::run(&fuzz::Job {
                addr: SocketAddr::new(args.addr, args.port),
                seed: args.seed,
                first: args.only.unwrap_or(args.first),
                sessions: args.only.map_or(args.sessions, |_| 1),
                limit: args.seconds.map(Duration::from_secs),
                workers: args.workers,
                patience: Duration::from_secs(args.patience),
                verbose: args.verbose || args.only.is_some(),
            })?;
        }
        Role::Rogue(args) => {
            ok = rogue::run(&rogue::Job {
                addr: SocketAddr::new(args.addr, args.port),
                case: args.case.as_deref(),
                old_keys: args.old_keys,
                inval_answers: args.inval_answers,
                seed: args.seed,
                first: args.first,
                plans: args.paths,
                timeout: Duration::from_secs(args.timeout),
                ready: args.ready.as_deref(),
                honest: args.honest,
                verbose: args.verbose,
            })?;
        }
        Role::HalfOpen(args) => {
            ok = half_open::run(&half_open::Job {
                addr: SocketAddr::new(args.addr, args.port),
                seed: args.seed,
                count: args.count,
                from: args.from,
                cons: args.cons,
                sources: args.sources,
                pause: Duration::from_millis(args.pause),
                workers: args.workers,
                deadline: Duration::from_secs(args.deadline),
                hold: args.hold,
            })?;
        }
    }
    Ok(ok)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        list();
        return ExitCode::SUCCESS;
    }
    let Some(role) = cli.role else {
        eprintln!("rtrs-peer: what to be is missing: server or client");
        return ExitCode::from(2);
    };
    match run(role) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            let all = serde_json::json!({"ok": false, "error": format!("{e:#}")});
            println!("{all}");
            eprintln!("rtrs-peer: {e:#}");
            ExitCode::from(2)
        }
    }
}
