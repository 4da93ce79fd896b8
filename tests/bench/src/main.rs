// SPDX-License-Identifier: GPL-2.0

//! What block IO over RDMA costs: makes tables of what guests counted.

mod counts;
mod kind;
mod reference;
mod row;
mod symbols;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

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
    /// Instructions of all rows, on the terminal and as JSON
    Count {
        /// Where the JSON goes
        #[arg(long)]
        json: Option<PathBuf>,
        /// Results of guests
        dirs: Vec<PathBuf>,
    },
    /// Instructions by function and by kind, ours and mainline's side by side
    Profile {
        /// Functions with fewer instructions are left out
        #[arg(long, default_value_t = 5.0)]
        least: f64,
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

fn run() -> Result<bool> {
    match Cli::parse().command {
        Cmd::Count { json, dirs } => {
            let rows = read(&dirs)?;
            print!("{}\n{}", table::rows(&rows), table::events(&rows));
            if let Some(path) = json {
                fs::write(&path, serde_json::to_string_pretty(&rows)?)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            Ok(true)
        }
        Cmd::Profile { least, dirs } => {
            let rows = read(&dirs)?;
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
