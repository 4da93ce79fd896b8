// SPDX-License-Identifier: GPL-2.0

//! Runs one job in one or two guests, and judges the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::console::{self, Problem};
use crate::guest::{Guest, Machine, Role};
use crate::host::{Host, Watch};
use crate::initramfs::Modules;
use crate::ktap::{Counts, Event, Outcome, Parser};
use crate::report::{TestResult, Verdict};

/// How the output of a job reaches the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Results of cases and failures' diagnostics.
    Progress,
    /// All lines as they are.
    Live,
}

/// A job and its circumstances.
pub struct Job<'a> {
    /// Name for the terminal and the result.
    pub name: String,
    /// The guests' common settings.
    pub machine: &'a Machine,
    /// Whether the exit status is the result, unless the job has cases of its own.
    pub command: bool,
    /// Modules of the initramfs.
    pub modules: &'a Modules,
    /// The guests, one or two.
    pub roles: Vec<Role>,
    /// Limit for the whole job.
    pub timeout: Duration,
    /// Limit until the job begins. With translation a guest now and then loses a timer interrupt at
    /// boot, and hangs.
    pub boot_limit: Duration,
    /// Where results go; emptied first.
    pub out_dir: PathBuf,
    /// Terminal output.
    pub show: Show,
}

/// Time for a guest to finish by itself after the other one has failed.
const GRACE: Duration = Duration::from_secs(10);
/// Time from the end of the job to the end of QEMU.
const POWER_OFF: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(40);

/// A guest that runs.
struct Track {
    guest: Guest,
    ktap: Parser,
    /// When the case that runs began: when the one before it was reported.
    case_began: Instant,
    /// It is down because a test asked for that.
    down_by_request: bool,
    status: Option<i32>,
    finished: Option<Instant>,
    crashed: bool,
    lingered: bool,
}

/// Boots the guests, follows them to the end and stores the result.
pub fn run(job: &Job) -> Result<TestResult> {
    let start = Instant::now();
    let sync = job.out_dir.join("sync");
    if job.out_dir.exists() {
        fs::remove_dir_all(&job.out_dir)
            .with_context(|| format!("cannot empty {}", job.out_dir.display()))?;
    }
    fs::create_dir_all(sync.join("control"))
        .with_context(|| format!("cannot create {}", sync.display()))?;
    // Paths of sockets are limited to some hundred characters.
    let sockets = tempfile::Builder::new()
        .prefix("rtrs-vm.")
        .tempdir()
        .context("cannot make a temporary directory")?;

    let mut tracks = Vec::new();
    for role in &job.roles {
        let mut guest = Guest::new(job.machine, role.clone(), &job.out_dir, sockets.path())?;
        guest.start(job.modules)?;
        tracks.push(Track {
            guest,
            ktap: Parser::new(),
            case_began: Instant::now(),
            down_by_request: false,
            status: None,
            finished: None,
            crashed: false,
            lingered: false,
        });
    }

    let mut watch = Watch::new(POLL);
    let mut timed_out = false;
    let mut first_failure: Option<Instant> = None;
    loop {
        let mut active = false;
        for t in &mut tracks {
            active |= follow(job, t)?;
        }
        control(job, &mut tracks, &sync)?;
        if !active
            && tracks
                .iter_mut()
                .all(|t| !matches!(t.guest.running(), Ok(true)))
        {
            break;
        }
        let failing = tracks
            .iter()
            .any(|t| t.crashed || t.status.is_some_and(|s| s != 0 && s != 4));
        if failing && first_failure.is_none() {
            first_failure = Some(Instant::now());
            // Helpers that wait for the peer look for this file.
            let _ = fs::write(sync.join("abort"), "a guest failed\n");
        }
        if start.elapsed() > job.timeout {
            timed_out = true;
        }
        let stuck = start.elapsed() > job.boot_limit
            && tracks
                .iter()
                .any(|t| t.guest.boots == 1 && t.guest.boot_seconds().is_none());
        if stuck {
            for t in &mut tracks {
                t.guest.kill();
                follow(job, t)?;
            }
            break;
        }
        if timed_out || first_failure.is_some_and(|f| f.elapsed() > GRACE + POWER_OFF) {
            for t in &mut tracks {
                t.guest.kill();
                follow(job, t)?;
            }
            break;
        }
        sleep(POLL);
        watch.tick();
    }
    let took = start.elapsed();
    let result = judge(job, &mut tracks, timed_out, took, watch.seen());
    result.write(&job.out_dir.join("result.json"))?;
    Ok(result)
}

/// Shows new output and notes the end. Returns whether the guest still runs.
fn follow(job: &Job, t: &mut Track) -> Result<bool> {
    // Checked before reading: then the last output of a guest is there.
    let running = t.guest.running()?;
    for line in t.guest.new_lines()? {
        show(job, t, &line);
    }
    if t.status.is_none() {
        t.status = t.guest.status();
        if t.status.is_some() {
            t.finished = Some(Instant::now());
        }
    }
    if !running {
        if let Some(line) = t.guest.last_line() {
            show(job, t, &line);
        }
        t.crashed = t.status.is_none() && !t.down_by_request;
        return Ok(false);
    }
    if t.finished.is_some_and(|f| f.elapsed() > POWER_OFF) {
        t.lingered = true;
        t.guest.kill();
        return Ok(false);
    }
    Ok(true)
}

fn show(job: &Job, t: &mut Track, line: &str) {
    let who = if job.roles.len() > 1 {
        format!("{}/{}", job.name, t.guest.role.name)
    } else {
        job.name.clone()
    };
    let event = t.ktap.line(line);
    if job.show == Show::Live {
        if job.roles.len() > 1 {
            println!("{}| {line}", t.guest.role.name);
        } else {
            println!("{line}");
        }
        return;
    }
    match event {
        Event::Case {
            outcome,
            name,
            depth,
        } => {
            let word = match outcome {
                Outcome::Pass => "ok  ",
                Outcome::Fail => "FAIL",
                Outcome::Skip => "skip",
                Outcome::SetUp => "..  ",
            };
            let took = t.case_began.elapsed();
            t.case_began = Instant::now();
            println!(
                "  {who}: {:indent$}{word} {name}{}",
                "",
                seconds(took),
                indent = 2 * depth
            );
        }
        Event::Note(text) => {
            // The helpers' own totals add nothing.
            if !text.starts_with("Totals:") && !text.contains("skipped test(s) detected") {
                println!("  {who}: # {text}");
            }
        }
        // Mostly error messages of the shell: cases keep their output to themselves.
        Event::Other(text) => println!("  {who}: | {text}"),
        Event::Structure => {}
    }
}

/// The time of a case, for the end of its line, if it is long enough to matter.
fn seconds(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        return String::new();
    }
    format!(" ({:.0} s)", took.as_secs_f64())
}

/// Serves requests of tests: files NAME.req in sync/control, answered in
/// NAME.ack. "kill GUEST", "start GUEST", "pause GUEST", "resume GUEST",
/// "link GUEST N up|down".
fn control(job: &Job, tracks: &mut [Track], sync: &Path) -> Result<()> {
    let dir = sync.join("control");
    let Ok(entries) = fs::read_dir(&dir) else {
        return Ok(());
    };
    for path in entries.filter_map(|e| e.ok()).map(|e| e.path()) {
        if path.extension().is_none_or(|e| e != "req") {
            continue;
        }
        let request = fs::read_to_string(&path).unwrap_or_default();
        let answer = match obey(job, tracks, request.trim()) {
            Ok(()) => "ok\n".to_string(),
            Err(e) => format!("error: {e:#}\n"),
        };
        println!("  {}: # {} -> {}", job.name, request.trim(), answer.trim());
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        let tmp = path.with_extension("tmp");
        fs::write(&tmp, answer)?;
        fs::rename(&tmp, path.with_extension("ack"))?;
    }
    Ok(())
}

fn obey(job: &Job, tracks: &mut [Track], request: &str) -> Result<()> {
    let words: Vec<&str> = request.split_whitespace().collect();
    let (verb, name, rest) = match words.as_slice() {
        [verb, name, rest @ ..] => (*verb, *name, rest),
        _ => anyhow::bail!("request is not \"VERB GUEST ...\""),
    };
    let t = tracks
        .iter_mut()
        .find(|t| t.guest.role.name == name)
        .with_context(|| format!("no guest {name}"))?;
    match (verb, rest) {
        ("kill", []) => {
            t.down_by_request = true;
            t.guest.kill();
            Ok(())
        }
        ("start", []) => {
            t.guest.start(job.modules)?;
            t.down_by_request = false;
            t.status = None;
            t.finished = None;
            Ok(())
        }
        ("pause", []) => t.guest.pause(true),
        ("resume", []) => t.guest.pause(false),
        ("link", [n, state @ ("up" | "down")]) => {
            let n = n.parse().context("link number")?;
            t.guest.link(n, *state == "up")
        }
        _ => anyhow::bail!("unknown request"),
    }
}

fn judge(
    job: &Job,
    tracks: &mut [Track],
    timed_out: bool,
    took: Duration,
    host: Host,
) -> TestResult {
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut excerpts = Vec::new();
    let mut consoles = Vec::new();
    let (mut panicked, mut splat, mut boot, mut failed) = (false, false, false, false);
    let mut skips = Vec::new();
    let mut skipped = true;
    let mut late = Some(Vec::new());
    // Whether nothing but cases went wrong, and whether the kernel reported nothing about the
    // modules.
    let (mut sound, mut quiet) = (!timed_out, true);

    for t in tracks.iter_mut() {
        let who = &t.guest.role.name;
        // A guest that was killed on purpose need not complete its plan.
        if !t.down_by_request {
            t.ktap.finish();
        }
        counts.add(t.ktap.counts());
        // The exit statuses of scripts; a shell that was killed leaves another status.
        sound &= !(t.crashed || t.lingered) && matches!(t.status, None | Some(0 | 1 | 4));
        late = late.zip(t.ktap.lateness()).map(|(mut all, own)| {
            all.extend(own.into_iter().map(str::to_string));
            all
        });
        failures.extend(t.ktap.failures().iter().cloned());
        skips.extend(t.ktap.skips().iter().cloned());

        for (path, began) in t.guest.consoles() {
            let log = fs::read(&path).unwrap_or_default();
            let problems = console::scan(&String::from_utf8_lossy(&log));
            panicked |= console::died(&problems);
            splat |= !problems.is_empty();
            for p in problems {
                quiet &= before_job(&p, began);
                failures.push(format!("{who}: the kernel reports: {}", p.kind));
                excerpts.push(p.excerpt.join("\n"));
            }
            consoles.push(path.display().to_string());
        }
        if t.guest.boot_seconds().is_none() && !t.down_by_request {
            boot = true;
            failures.push(format!("{who}: the job never started"));
        } else if t.crashed && !timed_out {
            failed = true;
            failures.push(format!("{who}: the guest ended before its job did"));
        }
        match t.status {
            Some(0) => skipped = false,
            Some(4) => {}
            Some(s) => {
                skipped = false;
                failed = true;
                failures.push(format!("{who}: exit status {s}"));
            }
            None => skipped = false,
        }
        if t.lingered {
            failed = true;
            failures.push(format!("{who}: did not power off (a stuck kernel?)"));
        }
    }
    if job.command && !failed && !skipped && counts.total() == 0 {
        counts.passed = 1;
    }
    if timed_out {
        failures.push(format!("time limit of {} s reached", job.timeout.as_secs()));
    }

    let verdict = if panicked {
        Verdict::Panic
    } else if splat {
        Verdict::Splat
    } else if timed_out {
        Verdict::Timeout
    } else if boot {
        Verdict::Boot
    } else if failed || counts.failed > 0 {
        Verdict::Fail
    } else if skipped {
        Verdict::Skip
    } else {
        Verdict::Pass
    };
    let late = late.filter(|_| sound && quiet);
    let doubtful = doubtful(verdict, boot, quiet, late.as_deref());
    TestResult {
        name: job.name.clone(),
        platform: job.machine.platform.name.clone(),
        skips,
        verdict,
        counts,
        failures,
        excerpts,
        seconds: took.as_secs_f64(),
        consoles,
        doubtful,
        late: late.unwrap_or_default(),
        host,
        earlier: Vec::new(),
    }
    .settle()
}

/// Whether the job may run again. A failure is final, unless each failed case says that it was only
/// late, which a shared machine may cause; or if a guest did not boot, or its kernel had a problem
/// before the job. `quiet`: the kernel reported nothing after that. `late`: the messages of the
/// failed cases, if each has one and nothing but cases went wrong.
fn doubtful(verdict: Verdict, boot: bool, quiet: bool, late: Option<&[String]>) -> bool {
    match verdict {
        Verdict::Pass | Verdict::Skip | Verdict::Timeout => false,
        _ if boot => quiet,
        // A job that fails without a failed case has another reason.
        Verdict::Fail => late.is_some_and(|l| !l.is_empty()),
        _ => quiet && late.is_some(),
    }
}

/// Whether the kernel reported this before the modules were there, because the job began later or
/// never. With translation a processor now and then meets a breakpoint that the kernel, which
/// changes its own code, has removed meanwhile; that ends the kernel.
fn before_job(p: &Problem, began: Option<f64>) -> bool {
    p.at.is_some_and(|at| began.is_none_or(|began| at < began))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_final_unless_late() {
        let late = ["5 s".to_string()];
        assert!(doubtful(Verdict::Fail, false, true, Some(&late)));
        // Another case failed that was not late, or something else went wrong.
        assert!(!doubtful(Verdict::Fail, false, true, None));
        // The job failed without a failed case.
        assert!(!doubtful(Verdict::Fail, false, true, Some(&[])));
        assert!(!doubtful(Verdict::Timeout, false, true, Some(&late)));
        assert!(!doubtful(Verdict::Pass, false, true, Some(&[])));
    }

    #[test]
    fn a_guest_that_did_not_get_far_may_be_tried_again() {
        for verdict in [Verdict::Boot, Verdict::Panic] {
            assert!(doubtful(verdict, true, true, None));
            assert!(!doubtful(verdict, true, false, None));
        }
        // A report at boot only.
        assert!(doubtful(Verdict::Splat, false, true, Some(&[])));
        assert!(!doubtful(Verdict::Splat, false, true, None));
        assert!(!doubtful(Verdict::Splat, false, false, Some(&[])));
    }

    #[test]
    fn what_the_kernel_says_at_boot_is_not_about_us() {
        let at = |at| Problem {
            kind: "WARNING",
            at,
            excerpt: Vec::new(),
        };
        assert!(before_job(&at(Some(3.0)), Some(5.0)));
        assert!(before_job(&at(Some(3.0)), None));
        assert!(!before_job(&at(Some(6.0)), Some(5.0)));
        assert!(!before_job(&at(None), None));
    }
}
