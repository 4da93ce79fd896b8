// SPDX-License-Identifier: GPL-2.0

//! What block IO over RDMA costs: makes tables of what guests counted.

mod counts;
mod kind;
mod mixed;
mod page;
mod plot;
mod reference;
mod row;
mod sharing;
mod source;
mod symbols;
mod table;
mod time;
mod writes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::mixed::Mixed;
use crate::page::Report;
use crate::reference::Reference;
use crate::row::Row;

#[derive(Parser)]
#[command(version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// All figures, on the terminal and as JSON
    Count {
        /// Where the JSON goes
        #[arg(long)]
        json: Option<PathBuf>,
        /// The kernel, for the JSON
        #[arg(long, default_value = "")]
        kernel: String,
        /// The commit, for the JSON
        #[arg(long, default_value = "")]
        commit: String,
        /// Results of guests that measured by the clock
        #[arg(long)]
        time: Vec<PathBuf>,
        /// Results of pairs of guests
        #[arg(long)]
        mixed: Vec<PathBuf>,
        /// Results of guests that counted
        dirs: Vec<PathBuf>,
    },
    /// What was measured by the clock
    Times {
        /// Results of guests
        dirs: Vec<PathBuf>,
    },
    /// Rows of pairs of guests; fails if one with one end of ours is worse than mainline's alone
    Mixed {
        /// Show all rows by function, not only those with too many instructions
        #[arg(long)]
        profile: bool,
        /// Functions with fewer instructions are left out
        #[arg(long, default_value_t = 5.0)]
        least: f64,
        /// Results of pairs of guests
        dirs: Vec<PathBuf>,
    },
    /// Plots and tables for the documentation
    Page {
        /// The JSON
        #[arg(long)]
        json: PathBuf,
        /// Where they go
        #[arg(long)]
        out: PathBuf,
    },
    /// How far two runs are apart; fails if that is more than 2 % where it must not be, or 3 % in two
    /// guests
    Compare {
        /// The JSON of one run
        one: PathBuf,
        /// And of the other
        other: PathBuf,
    },
    /// Instructions by function and by kind, ours and mainline's side by side
    Profile {
        /// Functions with fewer instructions are left out
        #[arg(long, default_value_t = 5.0)]
        least: f64,
        /// Functions of the rest of the kernel as well
        #[arg(long)]
        whole: bool,
        /// Results of guests
        dirs: Vec<PathBuf>,
    },
    /// The instructions of a function, and how often each runs per request
    Annotate {
        /// A row, as "rust 4k read Y 1"
        row: String,
        /// The end of the function's name
        function: String,
        /// Results of guests
        dirs: Vec<PathBuf>,
    },
    /// Cache lines of ours that more than one vCPU writes to
    Lines {
        /// The Rust modules of the run, for lines of source
        #[arg(long)]
        modules: PathBuf,
        /// Lines that move less often per request, all with the same writers together, are left out
        #[arg(long, default_value_t = 0.02)]
        least: f64,
        /// Results of guests that noted writes
        dirs: Vec<PathBuf>,
    },
    /// Fail if our modules cost more than the reference says
    Gate {
        /// The reference
        #[arg(long)]
        reference: PathBuf,
        /// Results of guests
        dirs: Vec<PathBuf>,
    },
}

fn read(dirs: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for dir in dirs {
        rows.extend(row::read(dir).with_context(|| format!("in {}", dir.display()))?);
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

fn read_mixed(dirs: &[PathBuf]) -> Result<Vec<Mixed>> {
    let mut rows = Vec::new();
    for dir in dirs {
        rows.extend(mixed::read(dir).with_context(|| format!("in {}", dir.display()))?);
    }
    rows.sort_by(|a, b| a.client.name.cmp(&b.client.name));
    Ok(rows)
}

/// Prints them, and which are worse than mainline's alone; returns whether none is.
fn show_mixed(rows: &[Mixed]) -> bool {
    print!("{}\n{}\n", mixed::table(rows), mixed::events(rows));
    let (lines, good) = mixed::judge(rows);
    for line in lines {
        println!("{line}");
    }
    good
}

fn load(path: &Path) -> Result<Report> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))
}

/// Percent by which two runs may differ: the Rust modules at any number of CPUs, the whole kernel at
/// one. With more, processors wait for others that the host has suspended.
const APART: f64 = 2.0;

/// The same for the Rust modules in two guests. The host decides how many completions there are
/// when one of them looks.
const APART_MIXED: f64 = 3.0;

fn compare(one: &Report, other: &Report) -> bool {
    let mut good = true;
    let (one, other) = (one.all(), other.all());
    for row in &one {
        let Some(again) = other.iter().find(|r| r.name == row.name) else {
            println!("{}: in one run only", row.name.text());
            good = false;
            continue;
        };
        let apart = |a: f64, b: f64| (b / a - 1.0) * 100.0;
        let own = apart(row.transport, again.transport);
        let all = apart(row.kernel, again.kernel);
        let alone = !row.name.stack.contains('/');
        let limit = if alone { APART } else { APART_MIXED };
        let bad = (row.name.stack.contains("rust") && own.abs() > limit)
            || (row.name.cpus == 1 && alone && all.abs() > limit);
        let word = if bad { "TOO FAR APART" } else { "ok" };
        println!(
            "{:22} transport {own:+6.2} %, whole kernel {all:+6.2} %: {word}",
            row.name.text()
        );
        good &= !bad;
    }
    good && !one.is_empty()
}

fn run() -> Result<bool> {
    match Cli::parse().command {
        Cmd::Count {
            json,
            kernel,
            commit,
            time,
            mixed,
            dirs,
        } => {
            let rows = read(&dirs)?;
            let (times, pairs) = time::read(&time)?;
            let mixed = read_mixed(&mixed)?;
            print!("{}\n{}", table::rows(&rows), table::events(&rows));
            if !times.is_empty() {
                print!("\n{}\n{}", table::times(&times), table::pairs(&pairs));
            }
            if !mixed.is_empty() {
                println!();
                show_mixed(&mixed);
            }
            let report = Report {
                kernel,
                commit,
                rows,
                times,
                pairs,
                mixed,
            };
            if let Some(path) = json {
                fs::write(&path, serde_json::to_string_pretty(&report)?)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            Ok(true)
        }
        Cmd::Times { dirs } => {
            let (times, pairs) = time::read(&dirs)?;
            print!("{}\n{}", table::times(&times), table::pairs(&pairs));
            Ok(true)
        }
        Cmd::Mixed {
            profile,
            least,
            dirs,
        } => {
            let rows = read_mixed(&dirs)?;
            print!("{}", mixed::profile(&rows, profile, least));
            Ok(show_mixed(&rows))
        }
        Cmd::Page { json, out } => {
            load(&json)?.write(&out)?;
            Ok(true)
        }
        Cmd::Compare { one, other } => Ok(compare(&load(&one)?, &load(&other)?)),
        Cmd::Profile { least, whole, dirs } => {
            let mut rows = read(&dirs)?;
            if whole {
                rows.iter_mut().for_each(Row::add_others);
            }
            print!("{}\n{}\n", table::rows(&rows), table::kinds(&rows));
            for ours in rows.iter().filter(|row| row.name.stack == "rust") {
                let mut theirs = ours.name.clone();
                theirs.stack = "c".into();
                let theirs = rows.iter().find(|row| row.name == theirs);
                println!("{}", table::profile(ours, theirs, least));
            }
            Ok(true)
        }
        Cmd::Annotate {
            row,
            function,
            dirs,
        } => {
            for dir in dirs {
                print!("{}", row::annotate(&dir, &row, &function)?);
            }
            Ok(true)
        }
        Cmd::Lines {
            modules,
            least,
            dirs,
        } => {
            for dir in dirs {
                let text = sharing::read(&dir, &modules, least);
                print!("{}", text.with_context(|| format!("in {}", dir.display()))?);
            }
            Ok(true)
        }
        Cmd::Gate { reference, dirs } => {
            let (lines, good) = Reference::read(&reference)?.judge(&read(&dirs)?);
            for line in lines {
                println!("{line}");
            }
            Ok(good)
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("rtrs-bench: error: {e:#}");
            ExitCode::from(2)
        }
    }
}
