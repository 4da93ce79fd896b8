// SPDX-License-Identifier: GPL-2.0

//! `rtrs-peer`: speaks RTRS from user space, over librdmacm and libibverbs, and not always the way
//! it is meant to be: as a server that the client under test connects to, or as a client of the
//! server under test. One case a run; the result is one line of JSON.

mod report;
mod server;
mod verbs;

/// The protocol as the modules have it.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../../rtrs_core"]
mod source {
    pub mod proto;
}
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../host/shim/atomic.rs"]
mod atomic;

use source::proto;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
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
}

#[derive(Args)]
struct Common {
    /// Address to listen at, or to connect to
    #[arg(long)]
    addr: IpAddr,

    /// Port to listen at, or to connect to
    #[arg(long, default_value_t = proto::DEFAULT_PORT)]
    port: u16,

    /// What to do, see --list
    #[arg(long)]
    case: String,
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

fn list() {
    for case in server::CASES {
        println!("server  {:<20} {}", case.name, case.about);
    }
}

fn run(role: Role) -> Result<Report> {
    match role {
        Role::Server(args) => server::run(&server::Job {
            addr: args.common.addr(),
            case: &args.common.case,
            count: args.count,
            timeout: Duration::from_secs(args.timeout),
            ready: args.ready.as_deref(),
        }),
    }
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
        Ok(report) => {
            println!("{}", report.to_json());
            if report.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(e) => {
            println!(
                "{}",
                serde_json::json!({"ok": false, "error": format!("{e:#}")})
            );
            eprintln!("rtrs-peer: {e:#}");
            ExitCode::from(2)
        }
    }
}
