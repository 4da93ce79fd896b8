// SPDX-License-Identifier: GPL-2.0

//! `rtrs-vm`: boots guests with the kernel that the modules are for, runs tests in them, and
//! reports the results.

mod console;
mod cpio;
mod guest;
mod host;
mod initramfs;
mod ktap;
mod platform;
mod report;
mod retry;
mod room;
mod run;
mod testfile;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Args, Parser, Subcommand};

use guest::{Machine, Role};
use initramfs::Modules;
use platform::{Accel, Platform};
use report::{Skips, TestResult, Verdict};
use retry::Chances;
use room::Room;
use run::{Job, Show};
use testfile::{Test, Topology};

#[derive(Parser)]
#[command(version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Run tests of tests/*.sh, each in a fresh guest
    Test(TestArgs),
    /// Run one command in a guest, or one script in a pair of guests
    Run(RunArgs),
    /// Sum up result files: .json of this program, KTAP, output of cargo test
    Report {
        /// List of what may be skipped; anything else that is skipped is a failure
        #[arg(long, env = "RTRS_STRICT_SKIPS")]
        strict_skips: Option<PathBuf>,
        /// The files, in the order they are to be shown
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Common {
    /// The repository
    #[arg(long, env = "RTRS_REPO")]
    repo: PathBuf,
    /// The cache that tests/env fills
    #[arg(long, env = "RTRS_CACHE", default_value = "/var/cache/rtrs-rs")]
    cache: PathBuf,
    /// Directory with the modules to test
    #[arg(long, env = "RTRS_MODULES")]
    modules: Option<PathBuf>,
    /// Where results go
    #[arg(long, env = "RTRS_RESULTS")]
    results: Option<PathBuf>,
    /// The kernel: a directory made by tests/env/kernel.sh --guest or debug-kernel.sh
    #[arg(long, env = "RTRS_PLATFORM")]
    platform: Option<PathBuf>,
    /// Further kernel arguments
    #[arg(long, default_value = "")]
    append: String,
    /// Virtual CPUs
    #[arg(long)]
    smp: Option<u32>,
    /// Memory
    #[arg(long)]
    mem: Option<String>,
    /// Links between the guests of a pair
    #[arg(long, default_value_t = 2)]
    links: u32,
    /// Time limit in seconds, in place of the test's own
    #[arg(long)]
    timeout: Option<u64>,
    /// Further argument for QEMU (may be given several times); {guest} stands for the guest's name
    #[arg(long = "qemu-arg", allow_hyphen_values = true)]
    qemu_args: Vec<String>,
    /// Translate also where the processor could do it, as QEMU's plugins need
    #[arg(long)]
    translate: bool,
    /// Translate, and let the guest's clock count its instructions, one each nanosecond, whatever
    /// the host is busy with
    #[arg(long)]
    count_time: bool,
    /// Show all output as it is
    #[arg(long)]
    live: bool,
}

#[derive(Args)]
struct TestArgs {
    #[command(flatten)]
    common: Common,
    /// Stop at the first failure
    #[arg(long)]
    fail_fast: bool,
    /// List the tests instead
    #[arg(long)]
    list: bool,
    /// Do not print the final summary (something else calls "report")
    #[arg(long)]
    no_summary: bool,
    /// Slots: a test in one guest takes one, a test in two guests takes two; with more than one
    /// slot, two tests that mostly wait run besides
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// How often a test may be run again whose failure may be the machine's fault
    #[arg(long, env = "RTRS_RETRIES", default_value_t = 0)]
    retries: usize,
    /// List of what may be skipped; anything else that is skipped is a failure
    #[arg(long, env = "RTRS_STRICT_SKIPS")]
    strict_skips: Option<PathBuf>,
    /// Names of tests; '*' stands for anything
    names: Vec<String>,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Name for the result
    #[arg(long, default_value = "run")]
    name: String,
    /// Two guests; the command finds its role in $RTRS_ROLE
    #[arg(long)]
    pair: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Number of tests that mostly wait and may run beside the others.
const WAITING: usize = 2;
const SMP: u32 = 2;
const MEM: &str = "4G";
/// Factor by which the debug kernel is slower.
const DEBUG_SCALE: u64 = 6;
const RUN_TIMEOUT: u64 = 300;
/// Booting takes an eighth of this, or a quarter if the machine is busy.
const BOOT_LIMIT: u64 = 60;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Cmd::Test(args) => test(&args),
        Cmd::Run(args) => run_command(&args),
        Cmd::Report {
            files,
            strict_skips,
        } => report_files(&files, strict_skips.as_deref()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("rtrs-vm: error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Settings that all tests of a call share.
struct Bench {
    machine: Machine,
    modules: Modules,
    results: PathBuf,
    ko_dir: PathBuf,
    scale: u64,
}

impl Bench {
    fn new(c: &Common) -> Result<Self> {
        let dir = c
            .platform
            .as_ref()
            .context("which kernel? --platform is missing")?;
        let platform = Platform::new(dir)?;
        let accel = if c.count_time {
            Accel::TcgCounted
        } else if c.translate {
            Accel::Tcg
        } else {
            Accel::probe(&c.cache, &platform)?
        };
        let modules = Modules::collect(&platform)?;
        let scale = if platform.debug { DEBUG_SCALE } else { 1 };
        println!(
            "kernel {} on QEMU with {accel:?}, all limits times {scale}",
            platform.release
        );
        Ok(Self {
            machine: Machine {
                platform,
                accel,
                smp: c.smp.unwrap_or(SMP),
                mem: c.mem.clone().unwrap_or_else(|| MEM.to_string()),
                append: c.append.clone(),
                qemu_args: c.qemu_args.clone(),
                repo: c.repo.clone(),
                cache: c.cache.clone(),
                links: 0,
            },
            modules,
            results: results_dir(c)?,
            ko_dir: c.modules.clone().unwrap_or_else(|| c.repo.clone()),
            scale,
        })
    }

    fn roles(&self, name: &str, topology: Topology, job: &str) -> Vec<Role> {
        let names: &[&str] = match topology {
            Topology::Single => &["solo"],
            Topology::Pair => &["server", "client"],
        };
        let platform = &self.machine.platform;
        let out = self.results.join(name);
        names
            .iter()
            .zip(0..)
            .map(|(role, index)| Role {
                name: role.to_string(),
                index,
                job: job.to_string(),
                env: [
                    ("RTRS_ROLE", role.to_string()),
                    ("RTRS_TEST", name.to_string()),
                    ("RTRS_SYNC", out.join("sync").display().to_string()),
                    ("RTRS_MODULES", self.ko_dir.display().to_string()),
                    ("RTRS_KTREE", platform.tree.display().to_string()),
                    ("RTRS_CPEER", self.peers().display().to_string()),
                    ("RTRS_DEBUG", u8::from(platform.debug).to_string()),
                    ("RTRS_TIME_SCALE", self.scale.to_string()),
                ]
                .into_iter()
                .map(|(k, v)| (k.to_string(), v))
                .chain(knobs())
                .collect(),
            })
            .collect()
    }

    /// Mainline's modules for this kernel, made by tests/env/c-peer.sh.
    fn peers(&self) -> PathBuf {
        let m = &self.machine;
        m.cache.join("c-peer").join(&m.platform.name)
    }

    fn machine_for(&self, topology: Topology, links: u32) -> Machine {
        Machine {
            links: match topology {
                Topology::Single => 0,
                Topology::Pair => links,
            },
            ..self.machine.clone()
        }
    }
}

/// Variables by which the user of the runner changes all tests.
const KNOBS: [&str; 14] = [
    "RTRS_LONG",
    "RTRS_CORE",
    "RTRS_SEED",
    "RTRS_SESSIONS",
    "RTRS_WORKERS",
    "RTRS_SIZES",
    "RTRS_INTEROP_CASES",
    "RTRS_EARLIER",
    "RTRS_RESUME_LIMIT",
    "RTRS_STALL_LIMIT",
    "RTRS_ACK_TIMEOUT",
    "RTRS_C_FORGETS",
    "RTRS_DEMO_FIO_SECONDS",
    "RTRS_RNBD_TOOL",
];

fn knobs() -> impl Iterator<Item = (String, String)> {
    KNOBS
        .iter()
        .filter_map(|name| Some((name.to_string(), env::var(name).ok()?)))
}

fn results_dir(c: &Common) -> Result<PathBuf> {
    let dir = c
        .results
        .clone()
        .unwrap_or_else(|| c.repo.join("results").join("by-hand"));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // Guests mount it at this path.
    dir.canonicalize()
        .with_context(|| format!("cannot resolve {}", dir.display()))
}

fn show_mode(c: &Common) -> Show {
    if c.live {
        Show::Live
    } else {
        Show::Progress
    }
}

fn test(args: &TestArgs) -> Result<bool> {
    let c = &args.common;
    let tests = testfile::select(testfile::all(&c.repo.join("tests"))?, &args.names)?;
    if args.list {
        for t in &tests {
            println!("{:24} {:8} {}", t.name, t.topology.word(), t.desc);
        }
        return Ok(true);
    }
    if tests.is_empty() {
        bail!("there are no tests in {}", c.repo.join("tests").display());
    }
    let bench = Bench::new(c)?;
    let chances = Chances::new(args.retries);
    let (shared, alone): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|t| !t.alone);
    let mut results = some_tests(&bench, args, &chances, shared, args.jobs)?;
    let failed = results.iter().any(|r| !r.verdict.good());
    if !(failed && args.fail_fast) {
        results.extend(some_tests(&bench, args, &chances, alone, 1)?);
    }
    results.sort_by(|a, b| a.name.cmp(&b.name));
    if args.no_summary {
        return Ok(results.iter().all(|r| r.verdict.good()));
    }
    sum_up(&results, args.strict_skips.as_deref())
}

/// Runs `jobs` tests at a time, the longest first; tests that mostly wait run beside them.
fn some_tests(
    bench: &Bench,
    args: &TestArgs,
    chances: &Chances,
    mut tests: Vec<&Test>,
    jobs: usize,
) -> Result<Vec<TestResult>> {
    tests.sort_by_key(|t| std::cmp::Reverse(t.seconds));
    let jobs = jobs.max(1);
    let room = Room::new(jobs, if jobs > 1 { WAITING } else { 0 });
    let left = Mutex::new(tests);
    let worker = || {
        let mut results = Vec::new();
        while let Some((t, _place)) = room.next(&left) {
            let result =
                chances.run(&bench.results, &t.name, || one_test(bench, &args.common, t))?;
            let good = result.verdict.good();
            results.push(result);
            if !good && args.fail_fast {
                left.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
        anyhow::Ok(results)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs + room.waiting())
            .map(|_| scope.spawn(worker))
            .collect();
        let mut results = Vec::new();
        for w in workers {
            results.extend(w.join().expect("a worker does not panic")?);
        }
        Ok(results)
    })
}

fn one_test(bench: &Bench, c: &Common, t: &Test) -> Result<TestResult> {
    let mut machine = bench.machine_for(t.topology, c.links);
    machine.append = format!("{} {}", t.append, machine.append)
        .trim()
        .to_string();
    if c.smp.is_none() {
        machine.smp = t.smp.unwrap_or(machine.smp);
    }
    if c.mem.is_none() {
        machine.mem = t.mem.clone().unwrap_or(machine.mem);
    }
    println!("{}: {}", t.name, t.desc);
    let job = format!("exec {}\n", guest::quote(&t.path.display().to_string()));
    execute(&Job {
        name: t.name.clone(),
        machine: &machine,
        command: false,
        modules: &bench.modules,
        roles: bench.roles(&t.name, t.topology, &job),
        timeout: Duration::from_secs(c.timeout.unwrap_or(t.timeout * bench.scale)),
        boot_limit: Duration::from_secs(BOOT_LIMIT * bench.scale),
        out_dir: bench.results.join(&t.name),
        show: show_mode(c),
    })
}

fn run_command(args: &RunArgs) -> Result<bool> {
    let c = &args.common;
    let bench = Bench::new(c)?;
    let topology = if args.pair {
        Topology::Pair
    } else {
        Topology::Single
    };
    let machine = bench.machine_for(topology, c.links);
    // One word is a shell command line, several are a command as it is.
    let job = match args.command.as_slice() {
        [line] => line.clone(),
        words => words
            .iter()
            .map(|w| guest::quote(w))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let result = execute(&Job {
        name: args.name.clone(),
        machine: &machine,
        command: true,
        modules: &bench.modules,
        roles: bench.roles(&args.name, topology, &format!("{job}\n")),
        timeout: Duration::from_secs(c.timeout.unwrap_or(RUN_TIMEOUT * bench.scale)),
        boot_limit: Duration::from_secs(BOOT_LIMIT * bench.scale),
        out_dir: bench.results.join(&args.name),
        show: show_mode(c),
    })?;
    // A command has nothing to skip.
    Ok(result.verdict == Verdict::Pass)
}

fn execute(job: &Job) -> Result<TestResult> {
    let result = run::run(job)?;
    for excerpt in &result.excerpts {
        println!("  {}: console log:", job.name);
        for line in excerpt.lines() {
            println!("    | {line}");
        }
    }
    if !result.verdict.good() {
        // Notes were printed when they came.
        for f in result.failures.iter().filter(|f| !f.starts_with("  | ")) {
            println!("  {}: ! {f}", job.name);
        }
        println!("  {}: machine: {}", job.name, result.host);
        tails(&job.out_dir);
    }
    println!(
        "{}: {} ({} of {} passed) in {:.1} s",
        job.name,
        result.verdict.word(),
        result.counts.passed,
        result.counts.total(),
        result.seconds
    );
    Ok(result)
}

/// After a failure, prints the end of each guest's kernel log.
fn tails(out_dir: &Path) {
    for role in ["solo", "server", "client"] {
        let dir = out_dir.join(role);
        for file in ["console.log", "qemu.log"] {
            let Ok(data) = fs::read(dir.join(file)) else {
                continue;
            };
            let text = String::from_utf8_lossy(&data);
            let lines: Vec<&str> = text.lines().collect();
            if lines.is_empty() {
                continue;
            }
            println!("  end of {}:", dir.join(file).display());
            for line in &lines[lines.len().saturating_sub(25)..] {
                println!("    | {line}");
            }
        }
    }
}

fn report_files(files: &[PathBuf], strict_skips: Option<&Path>) -> Result<bool> {
    let results: Result<Vec<TestResult>> = files.iter().map(|f| TestResult::read(f)).collect();
    sum_up(&results?, strict_skips)
}

fn sum_up(results: &[TestResult], strict_skips: Option<&Path>) -> Result<bool> {
    let allowed = strict_skips.map(Skips::read).transpose()?;
    Ok(report::summary(results, allowed.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables that the runner sets for guests.
    const TOLD: [&str; 12] = [
        "RTRS_REPO",
        "RTRS_CACHE",
        "RTRS_BOOT",
        "RTRS_ROLE",
        "RTRS_TEST",
        "RTRS_SYNC",
        "RTRS_MODULES",
        "RTRS_KTREE",
        "RTRS_CPEER",
        "RTRS_DEBUG",
        "RTRS_TIME_SCALE",
        // Its place follows from the other variables.
        "RTRS_PEER",
    ];

    /// Variables that have a default in a script, so that a user may set them.
    fn settable(script: &str) -> Vec<&str> {
        script
            .split("${")
            .skip(1)
            .filter(|rest| rest.starts_with("RTRS_"))
            .filter_map(|rest| rest.split_once(":-"))
            .map(|(name, _)| name)
            .filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
            .collect()
    }

    #[test]
    fn what_tests_can_be_told_reaches_them() -> Result<()> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut scripts: Vec<_> = testfile::all(&tests)?.into_iter().map(|t| t.path).collect();
        for entry in fs::read_dir(tests.join("lib"))? {
            scripts.push(entry?.path());
        }
        for path in scripts {
            let text = fs::read_to_string(&path)?;
            for name in settable(&text) {
                assert!(
                    KNOBS.contains(&name) || TOLD.contains(&name),
                    "{}: {name} does not reach guests",
                    path.display()
                );
            }
        }
        Ok(())
    }

    #[test]
    fn knobs_are_found() {
        assert_eq!(
            settable("a=${RTRS_A_B:-$(x)} ${OTHER:-} ${RTRS_C}"),
            ["RTRS_A_B"]
        );
    }
}
