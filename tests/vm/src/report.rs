// SPDX-License-Identifier: GPL-2.0

//! Results: of one test in a file, of many in a summary.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::ktap::{Counts, Parser};
use crate::testfile::glob;

/// How a test ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All cases passed, and the kernel reported nothing.
    #[default]
    Pass,
    /// Nothing was tested, for a stated reason.
    Skip,
    /// A case failed, or the test itself.
    Fail,
    /// The time limit was reached.
    Timeout,
    /// A guest's kernel died.
    Panic,
    /// A guest's kernel reported trouble (Oops, WARNING, KASAN, ...).
    Splat,
    /// A guest never started its job.
    Boot,
}

impl Verdict {
    /// Whether the run as a whole can succeed with this verdict.
    pub fn good(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Skip)
    }

    /// The word for output.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Skip => "skip",
            Verdict::Fail => "FAIL",
            Verdict::Timeout => "TIMEOUT",
            Verdict::Panic => "PANIC",
            Verdict::Splat => "KERNEL REPORT",
            Verdict::Boot => "NO BOOT",
        }
    }
}

/// A failure after which the test was run again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// How it ended.
    pub verdict: Verdict,
    /// The failures.
    pub failures: Vec<String>,
    /// The messages of the failed cases about being late.
    #[serde(default)]
    pub late: Vec<String>,
    /// The state of the machine.
    pub host: Host,
    /// The directory with its files.
    pub kept: String,
}

/// Result of one test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TestResult {
    /// Name of the test.
    pub name: String,
    /// The kernel it ran on, if it ran on one.
    #[serde(default)]
    pub platform: String,
    /// How it ended.
    pub verdict: Verdict,
    /// Its cases.
    pub counts: Counts,
    /// The failures, each with what is known of it in the lines below.
    pub failures: Vec<String>,
    /// Excerpts of console logs.
    pub excerpts: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Console logs that are worth a look in case of trouble.
    pub consoles: Vec<String>,
    /// The state of the machine meanwhile.
    #[serde(default)]
    pub host: Host,
    /// Names of the cases that were skipped.
    #[serde(default)]
    pub skips: Vec<String>,
    /// Whether a failed test may run again.
    #[serde(default)]
    pub doubtful: bool,
    /// The messages of the failed cases, if each says that it was only late.
    #[serde(default)]
    pub late: Vec<String>,
    /// Earlier failures.
    #[serde(default)]
    pub earlier: Vec<Attempt>,
}

impl TestResult {
    /// Makes the counts agree with the verdict: a test that failed without a failed case counts as
    /// one. A test without any case has failed.
    pub fn settle(mut self) -> Self {
        if self.counts.total() == 0 && self.verdict == Verdict::Pass {
            self.verdict = Verdict::Fail;
            self.failures.push("not a single case was run".to_string());
            self.counts.failed = 1;
        }
        if !self.verdict.good() && self.counts.failed == 0 {
            self.counts.failed = 1;
            self.failures
                .push(format!("{}: {}", self.name, self.verdict.word()));
        }
        if self.counts.total() == 0 {
            self.counts.skipped = 1;
        }
        if self.verdict == Verdict::Skip && self.skips.is_empty() {
            self.skips.push(ALL.to_string());
        }
        self
    }

    /// Name and kernel.
    fn title(&self) -> String {
        if self.platform.is_empty() {
            return self.name.clone();
        }
        format!("{} on {}", self.name, self.platform)
    }

    /// Stores the result.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot encode a result")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a result of this program (.json), the output of `cargo test`, or KTAP.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        if path.extension().is_some_and(|e| e == "json") {
            return serde_json::from_str(&text)
                .with_context(|| format!("{} is no result", path.display()));
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (mut counts, mut failures, skips) = if text.contains("\ntest result: ") {
            cargo_test(&text)
        } else {
            let mut p = Parser::new();
            for line in text.lines() {
                p.line(line);
            }
            p.finish();
            let mut failures = p.failures().to_vec();
            if !failures.is_empty() {
                failures.extend(log_beside(path));
            }
            (p.counts(), failures, p.skips().to_vec())
        };
        if counts == Counts::default() {
            counts.failed = 1;
            failures.push("not a single case was run".to_string());
        }
        // Tests of the tests' own tools prove nothing about the modules.
        if name.starts_with(SETUP) {
            counts.setup += counts.passed;
            counts.passed = 0;
        }
        Ok(Self {
            verdict: if counts.failed > 0 {
                Verdict::Fail
            } else {
                Verdict::Pass
            },
            name,
            counts,
            failures,
            skips,
            ..Self::default()
        })
    }
}

/// Name in `skips` of a test that was skipped as a whole.
const ALL: &str = "(all)";
/// Prefix of result files whose cases are set-up steps.
const SETUP: &str = "setup-";

/// The end of the log of a check that failed.
fn log_beside(path: &Path) -> Vec<String> {
    const LINES: usize = 40;

    let mut log = path.as_os_str().to_owned();
    log.push(".log");
    let text = fs::read_to_string(Path::new(&log)).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..]
        .iter()
        .map(|line| format!("  | {line}"))
        .collect()
}

/// Sums up the output of the test programs of one or more crates; names failed and skipped tests.
fn cargo_test(text: &str) -> (Counts, Vec<String>, Vec<String>) {
    let mut counts = Counts::default();
    let (mut failures, mut skips) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some((name, end)) = line
            .strip_prefix("test ")
            .and_then(|l| l.rsplit_once(" ... "))
        {
            match end.split(',').next() {
                Some("FAILED") => failures.push(name.to_string()),
                Some("ignored") => skips.push(name.to_string()),
                _ => {}
            }
        }
        let Some(rest) = line.strip_prefix("test result: ") else {
            continue;
        };
        let number = |word: &str| -> u32 {
            rest.split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(word))
                .find_map(|n| n.trim().parse().ok())
                .unwrap_or(0)
        };
        counts.passed += number("passed");
        counts.failed += number("failed");
        counts.skipped += number("ignored");
    }
    (counts, failures, skips)
}

/// Limit on the number of tests that were run again: more of them mean an intermittent fault.
const RETRIED: usize = 2;
/// Lines shown of the console log of a failure after which a test was run again.
const CONSOLE_LINES: usize = 15;

/// Prints a line for each result, the failures, retried and skipped cases, and the last line that
/// scripts read. Returns whether all is well. With `allowed`, a skip that is not on the list is a
/// failure.
pub fn summary(results: &[TestResult], allowed: Option<&Skips>) -> bool {
    let mut total = Counts::default();
    let width = results.iter().map(|r| r.title().len()).max().unwrap_or(0);

    println!();
    for r in results {
        total.add(r.counts);
        let time = if r.seconds > 0.0 {
            format!("{:6.1} s", r.seconds)
        } else {
            String::new()
        };
        println!(
            "{:width$}  {:<13} {:>10}  {}",
            r.title(),
            r.verdict.word(),
            tally(r.counts),
            time
        );
    }
    for r in results.iter().filter(|r| !r.verdict.good()) {
        println!("\n{} failed:", r.title());
        for f in &r.failures {
            println!("  {f}");
        }
        println!("  machine: {}", r.host);
        for c in &r.consoles {
            println!("  console log: {c}");
        }
    }
    total.failed += retried(results);
    total.failed += skipped(results, allowed);
    println!();
    println!("{} steps of setting up succeeded", total.setup);
    println!("{}", last_line(total));
    total.failed == 0 && results.iter().all(|r| r.verdict.good())
}

/// Prints which tests were run again, and why; returns the number of these failures.
fn retried(results: &[TestResult]) -> u32 {
    let again: Vec<_> = results.iter().filter(|r| !r.earlier.is_empty()).collect();

    println!("\n{} tests were run again", again.len());
    for (r, n) in again
        .iter()
        .flat_map(|r| r.earlier.iter().map(move |a| (r, a)))
    {
        println!("{} was run again after {}:", r.title(), n.verdict.word());
        for f in n.failures.iter().chain(&n.late) {
            println!("  {f}");
        }
        println!("  machine: {}", n.host);
        println!("  kept in {}", n.kept);
        show_consoles(Path::new(&n.kept));
    }
    if again.len() > RETRIED {
        println!("more than {RETRIED} tests were run again: that is a failure");
        return 1;
    }
    0
}

/// The ends of the console logs below a directory of results.
fn show_consoles(dir: &Path) {
    for role in ["solo", "server", "client"] {
        let path = dir.join(role).join("console.log");
        let Ok(data) = fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&data);
        let lines: Vec<_> = text.lines().collect();
        println!("  end of {}:", path.display());
        for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
            println!("    | {line}");
        }
    }
}

/// Prints the skipped cases; returns how many of them are not allowed.
fn skipped(results: &[TestResult], allowed: Option<&Skips>) -> u32 {
    let mut bad = 0;

    for (r, case) in results
        .iter()
        .flat_map(|r| r.skips.iter().map(move |c| (r, c)))
    {
        let listed = allowed.is_none_or(|a| a.has(&r.name, &r.platform, case));
        println!(
            "skipped: {}: {case}{}",
            r.title(),
            if listed {
                ""
            } else {
                " (not in the list of skips: that is a failure)"
            }
        );
        bad += u32::from(!listed);
    }
    bad
}

/// The list of allowed skips: lines "TEST PLATFORM CASE", each a pattern in which '*' stands for
/// anything; the case is the rest of the line.
pub struct Skips(Vec<[String; 3]>);

impl Skips {
    /// Reads a list.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'));
        let rows = lines.map(|line| {
            let (test, rest) = line.split_once(char::is_whitespace)?;
            let (platform, case) = rest.trim_start().split_once(char::is_whitespace)?;
            Some([test, platform, case.trim_start()].map(str::to_string))
        });
        let rows: Option<Vec<_>> = rows.collect();
        Ok(Self(rows.context("a line is not \"TEST PLATFORM CASE\"")?))
    }

    fn has(&self, test: &str, platform: &str, case: &str) -> bool {
        self.0
            .iter()
            .any(|[t, p, c]| glob(t, test) && glob(p, platform) && glob(c, case))
    }
}

fn tally(c: Counts) -> String {
    format!("{}/{}", c.passed, c.total())
}

fn last_line(c: Counts) -> String {
    let mut line = format!("{} passed, {} failed", c.passed, c.failed);
    if c.skipped > 0 {
        line.push_str(&format!(", {} skipped", c.skipped));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(verdict: Verdict, counts: Counts) -> TestResult {
        TestResult {
            name: "t".into(),
            verdict,
            counts,
            ..TestResult::default()
        }
    }

    #[test]
    fn trouble_without_a_failed_case_counts() {
        let passed = Counts {
            passed: 4,
            ..Counts::default()
        };
        assert_eq!(result(Verdict::Splat, passed).settle().counts.failed, 1);
        assert_eq!(result(Verdict::Pass, passed).settle().counts, passed);
    }

    #[test]
    fn a_test_without_a_case_has_failed() {
        let none = Counts {
            setup: 3,
            ..Counts::default()
        };
        let empty = result(Verdict::Pass, none).settle();
        assert_eq!((empty.verdict, empty.counts.failed), (Verdict::Fail, 1));
        let skipped = result(Verdict::Skip, none).settle();
        assert_eq!((skipped.counts.skipped, skipped.skips.len()), (1, 1));
    }

    #[test]
    fn few_may_be_run_again() {
        let again = |name: &str| TestResult {
            name: name.into(),
            earlier: vec![Attempt {
                verdict: Verdict::Fail,
                failures: vec!["x".into()],
                late: vec!["5 s".into()],
                host: Host::default(),
                kept: String::new(),
            }],
            ..result(
                Verdict::Pass,
                Counts {
                    passed: 1,
                    ..Counts::default()
                },
            )
        };
        let mut list = vec![again("a"), again("b")];
        assert!(summary(&list, None));
        list.push(again("c"));
        assert!(!summary(&list, None));
    }

    #[test]
    fn a_skip_that_is_not_listed_is_a_failure() -> Result<()> {
        let skips = Skips::parse("# why\nt *-rt-amd64 polled *\n\nu * (all)\n")?;
        let one = |name: &str, platform: &str, case: &str| TestResult {
            name: name.into(),
            platform: platform.into(),
            skips: vec![case.into()],
            ..result(
                Verdict::Pass,
                Counts {
                    passed: 1,
                    skipped: 1,
                    ..Counts::default()
                },
            )
        };
        let listed = one("t", "7.3.4+deb13-rt-amd64", "polled IO");
        assert!(summary(std::slice::from_ref(&listed), Some(&skips)));
        for other in [
            one("t", "7.3.4+deb13-amd64", "polled IO"),
            one("t", "7.3.4+deb13-rt-amd64", "IO"),
            one("v", "x", "(all)"),
        ] {
            assert!(summary(std::slice::from_ref(&other), None));
            assert!(!summary(&[other], Some(&skips)));
        }
        assert!(Skips::parse("just two\n").is_err());
        Ok(())
    }

    #[test]
    fn files_of_other_programs() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let ktap = dir.path().join("loads.ktap");
        fs::write(&ktap, "")?;
        assert_eq!(TestResult::read(&ktap)?.verdict, Verdict::Fail);
        fs::write(&ktap, "ok 1 a # SKIP no device\nok 2 b\n")?;
        assert_eq!(TestResult::read(&ktap)?.skips, ["a"]);
        Ok(())
    }

    #[test]
    fn tests_of_tools_are_no_cases() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("setup-runner.log");
        fs::write(
            &log,
            "test a ... ok\ntest b ... FAILED\n\ntest result: FAILED. 5 passed; 1 failed;\n",
        )?;
        let c = TestResult::read(&log)?.counts;
        assert_eq!((c.setup, c.passed, c.failed), (5, 0, 1));
        Ok(())
    }

    #[test]
    fn a_failed_check_shows_its_log() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("rtrs-vm-report-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let ktap = dir.join("build.ktap");
        fs::write(&ktap, "not ok 1 it builds\n")?;
        fs::write(dir.join("build.ktap.log"), "one\ntwo\n")?;
        let r = TestResult::read(&ktap);
        fs::write(&ktap, "ok 1 it builds\n")?;
        let good = TestResult::read(&ktap);
        fs::remove_dir_all(&dir)?;
        assert_eq!(r?.failures, ["it builds", "  | one", "  | two"]);
        assert!(good?.failures.is_empty());
        Ok(())
    }

    #[test]
    fn cargo_output() {
        let (c, f, s) = cargo_test(concat!(
            "test a::b ... ok\ntest a::c ... FAILED\ntest d ... ignored\n",
            "test src/e.rs - e (line 3) ... ignored, it takes long\n",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out\n",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
        ));
        assert_eq!((c.passed, c.failed, c.skipped), (15, 1, 2));
        assert_eq!(f, ["a::c"]);
        assert_eq!(s, ["d", "src/e.rs - e (line 3)"]);
    }

    #[test]
    fn last_line_is_what_scripts_expect() {
        let mut c = Counts {
            passed: 3,
            ..Counts::default()
        };
        assert_eq!(last_line(c), "3 passed, 0 failed");
        c.skipped = 1;
        assert_eq!(last_line(c), "3 passed, 0 failed, 1 skipped");
    }
}
