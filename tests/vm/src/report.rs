// SPDX-License-Identifier: GPL-2.0

//! Results: of one test in a file, of many in a summary.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::ktap::{Counts, Parser};

/// How a test ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All cases passed, the kernel had nothing to say.
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
    /// A guest never got to run its job.
    Boot,
}

impl Verdict {
    /// Does the run as a whole succeed with it?
    pub fn good(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Skip)
    }

    /// For people.
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
    /// What failed.
    pub failures: Vec<String>,
    /// How the machine was.
    pub host: Host,
    /// Where its files are.
    pub kept: String,
}

/// Result of one test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TestResult {
    /// Name of the test.
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
    /// Its cases.
    pub counts: Counts,
    /// What failed, one line each.
    pub failures: Vec<String>,
    /// Excerpts of console logs.
    pub excerpts: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Console logs, in case of trouble worth a look.
    pub consoles: Vec<String>,
    /// How the machine was meanwhile.
    #[serde(default)]
    pub host: Host,
    /// If it failed: could that be the machine?
    #[serde(default)]
    pub doubtful: bool,
    /// Failures before.
    #[serde(default)]
    pub earlier: Vec<Attempt>,
}

impl TestResult {
    /// Makes the counts agree with the verdict: a test that went wrong without
    /// a failed case counts as one, one without any case as one, too.
    pub fn settle(mut self) -> Self {
        if !self.verdict.good() && self.counts.failed == 0 {
            self.counts.failed = 1;
            self.failures
                .push(format!("{}: {}", self.name, self.verdict.word()));
        }
        if self.counts.total() == 0 {
            match self.verdict {
                Verdict::Skip => self.counts.skipped = 1,
                _ => self.counts.passed = 1,
            }
        }
        self
    }

    /// Stores it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot encode a result")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a result of ours (.json), the output of `cargo test`, or KTAP.
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
        let (counts, failures) = if text.contains("\ntest result: ") {
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
            (p.counts(), failures)
        };
        Ok(Self {
            verdict: if counts.failed > 0 {
                Verdict::Fail
            } else {
                Verdict::Pass
            },
            name,
            counts,
            failures,
            ..Self::default()
        })
    }
}

/// The end of what a check that failed had to say.
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

/// Sums up what the test programs of one or more crates printed.
fn cargo_test(text: &str) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("test ") {
            if let Some(name) = rest.strip_suffix(" ... FAILED") {
                failures.push(name.to_string());
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
    (counts, failures)
}

/// Prints a line for each result, the failures, and the last line that
/// scripts read. Returns whether all is well.
pub fn summary(results: &[TestResult]) -> bool {
    let mut total = Counts::default();
    let width = results.iter().map(|r| r.name.len()).max().unwrap_or(0);

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
            r.name,
            r.verdict.word(),
            tally(r.counts),
            time
        );
    }
    for r in results.iter().filter(|r| !r.verdict.good()) {
        println!("\n{} failed:", r.name);
        for f in &r.failures {
            println!("  {f}");
        }
        println!("  machine: {}", r.host);
        for c in &r.consoles {
            println!("  console log: {c}");
        }
    }
    for (r, n) in results
        .iter()
        .flat_map(|r| r.earlier.iter().map(move |a| (r, a)))
    {
        println!("\n{} was run again after {}:", r.name, n.verdict.word());
        for f in &n.failures {
            println!("  {f}");
        }
        println!("  machine: {}", n.host);
        println!("  kept in {}", n.kept);
    }
    println!();
    let good = results.iter().all(|r| r.verdict.good()) && total.failed == 0;
    println!("{}", last_line(total));
    good
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
        let none = Counts::default();
        assert_eq!(result(Verdict::Pass, none).settle().counts.passed, 1);
        assert_eq!(result(Verdict::Skip, none).settle().counts.skipped, 1);
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
        let (c, f) = cargo_test(concat!(
            "test a::b ... ok\ntest a::c ... FAILED\n",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out\n",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
        ));
        assert_eq!((c.passed, c.failed, c.skipped), (15, 1, 2));
        assert_eq!(f, ["a::c"]);
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
