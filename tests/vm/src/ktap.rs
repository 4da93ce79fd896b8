// SPDX-License-Identifier: GPL-2.0

//! Reads KTAP (and TAP) from a stream of lines, nested to any depth.
//!
//! See `Documentation/dev-tools/ktap.rst` of the kernel for the format.

use serde::{Deserialize, Serialize};

/// Number of cases by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Cases reported `ok`.
    pub passed: u32,
    /// Cases reported `not ok`, and planned ones that were never reported.
    pub failed: u32,
    /// Cases reported with the SKIP directive.
    pub skipped: u32,
    /// Set-up steps, which prove nothing: `ok ... # set-up`. One that fails is a failed case.
    #[serde(default)]
    pub setup: u32,
}

impl Counts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.setup += other.setup;
    }

    /// Number of cases, without set-up steps.
    pub fn total(&self) -> u32 {
        self.passed + self.failed + self.skipped
    }
}

/// Outcome of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `ok`, or an expected failure.
    Pass,
    /// `not ok`.
    Fail,
    /// `ok ... # SKIP`.
    Skip,
    /// `ok ... # set-up`.
    SetUp,
}

/// The meaning of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The result of a case.
    Case {
        /// How it ended.
        outcome: Outcome,
        /// Its name, as given.
        name: String,
        /// Nesting depth, 0 for the outermost.
        depth: usize,
    },
    /// A diagnostic line, without its `# `.
    Note(String),
    /// Version or plan line: structure, nothing to show.
    Structure,
    /// Not KTAP: output of a program.
    Other(String),
}

/// One open nesting level.
#[derive(Default)]
struct Level {
    planned: Option<u32>,
    seen: u32,
    failed: u32,
}

/// Parser of one stream.
#[derive(Default)]
pub struct Parser {
    levels: Vec<Level>,
    counts: Counts,
    failures: Vec<String>,
    skips: Vec<String>,
    /// The messages of failed cases about being late; `None` for a case without one.
    late: Vec<Option<String>>,
    /// If the last case failed, notes are about it: how many of them are still kept.
    notes_left: Option<u32>,
}

/// How many notes of a failed case are kept. The first ones say what failed.
const NOTES: u32 = 12;

/// The text by which a case says that a slow machine may be the reason of its failure.
const LATE: &str = "late: ";

impl Parser {
    /// A parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts of the cases seen so far; nested groups count by their leaves.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Names of the failed cases so far, each with its first notes.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Names of the skipped cases so far.
    pub fn skips(&self) -> &[String] {
        &self.skips
    }

    /// The messages of the failed cases, if each of them says that it was only late.
    pub fn lateness(&self) -> Option<Vec<&str>> {
        self.late.iter().map(|l| l.as_deref()).collect()
    }

    /// Takes one line, without its newline.
    pub fn line(&mut self, line: &str) -> Event {
        let body = line.trim_start_matches(' ');
        let depth = (line.len() - body.len()) / 2;

        if body.starts_with("KTAP version") || body.starts_with("TAP version") {
            self.open(depth);
            return Event::Structure;
        }
        if let Some(n) = plan(body) {
            self.open_if_needed(depth);
            self.levels[depth].planned = Some(n);
            return Event::Structure;
        }
        if let Some((outcome, name)) = result(body) {
            self.case(depth, outcome, &name);
            return Event::Case {
                outcome,
                name,
                depth,
            };
        }
        match body.strip_prefix('#') {
            Some(note) => {
                let note = note.trim_start();
                self.note(note);
                Event::Note(note.to_string())
            }
            None => Event::Other(line.to_string()),
        }
    }

    fn note(&mut self, note: &str) {
        let Some(left) = self.notes_left.as_mut() else {
            return;
        };
        if let (Some(last), Some(text)) = (self.late.last_mut(), note.strip_prefix(LATE)) {
            last.get_or_insert(text.to_string());
        }
        if *left > 0 {
            *left -= 1;
            self.failures.push(format!("  | {note}"));
        }
    }

    /// Ends the stream: cases that were planned and not reported have failed.
    pub fn finish(&mut self) {
        self.close_below(0);
    }

    fn open(&mut self, depth: usize) {
        self.close_below(depth);
        self.open_if_needed(depth);
    }

    fn open_if_needed(&mut self, depth: usize) {
        while self.levels.len() <= depth {
            self.levels.push(Level::default());
        }
    }

    /// Ends the levels at `depth` and deeper; returns how many cases they had and how many of these
    /// failed.
    fn close_below(&mut self, depth: usize) -> (u32, u32) {
        let (mut seen, mut failed) = (0, 0);
        while self.levels.len() > depth {
            let Some(level) = self.levels.pop() else {
                break;
            };
            if let Some(planned) = level.planned {
                if planned > level.seen {
                    let missing = planned - level.seen;
                    self.counts.failed += missing;
                    failed += missing;
                    self.failures.push(format!(
                        "{missing} of {planned} planned cases never reported"
                    ));
                    self.late.push(None);
                }
            }
            seen += level.seen;
            failed += level.failed;
        }
        (seen, failed)
    }

    fn case(&mut self, depth: usize, outcome: Outcome, name: &str) {
        self.notes_left = None;
        let (children, failed_children) = self.close_below(depth + 1);
        self.open_if_needed(depth);
        let level = &mut self.levels[depth];
        level.seen += 1;
        if outcome == Outcome::Fail {
            level.failed += 1;
        }
        // The line that sums up a group is no case of its own, unless it is the only failed one.
        if children > 0 && !(outcome == Outcome::Fail && failed_children == 0) {
            return;
        }
        match outcome {
            Outcome::Pass => self.counts.passed += 1,
            Outcome::SetUp => self.counts.setup += 1,
            Outcome::Skip => {
                self.counts.skipped += 1;
                self.skips.push(name.to_string());
            }
            Outcome::Fail => {
                self.counts.failed += 1;
                self.failures.push(name.to_string());
                self.late.push(None);
                self.notes_left = Some(NOTES);
            }
        }
    }
}

fn plan(body: &str) -> Option<u32> {
    let rest = body.strip_prefix("1..")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn result(body: &str) -> Option<(Outcome, String)> {
    let (ok, rest) = if let Some(rest) = body.strip_prefix("not ok") {
        (false, rest)
    } else {
        (true, body.strip_prefix("ok")?)
    };
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let rest = rest.trim_start();
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.trim_start().trim_start_matches("- ");
    let (name, directive) = match rest.split_once(" # ").or_else(|| rest.split_once("# ")) {
        Some((n, d)) => (n.trim(), d.trim()),
        None => (rest.trim(), ""),
    };
    let word = directive
        .split_whitespace()
        .next()
        .unwrap_or("")
        .to_uppercase();
    let outcome = match (ok, word.as_str()) {
        (_, "SKIP") => Outcome::Skip,
        (_, "XFAIL" | "TODO") => Outcome::Pass,
        (true, "SET-UP") => Outcome::SetUp,
        (true, _) => Outcome::Pass,
        (false, _) => Outcome::Fail,
    };
    Some((outcome, name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> (Counts, Vec<String>) {
        let mut p = Parser::new();
        for l in text.lines() {
            p.line(l);
        }
        p.finish();
        (p.counts(), p.failures().to_vec())
    }

    fn counts(passed: u32, failed: u32, skipped: u32) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
            setup: 0,
        }
    }

    #[test]
    fn steps_of_setting_up_are_no_cases() {
        let (c, f) = run("ok 1 a # set-up\nnot ok 2 b # set-up\nok 3 c\n");
        assert_eq!((c.setup, c.passed, c.failed), (1, 1, 1));
        assert_eq!((c.total(), f), (2, vec!["b".to_string()]));
    }

    #[test]
    fn the_first_notes_of_a_failed_case_are_kept() {
        let many: String = (0..20).map(|n| format!("# {n}\n")).collect();
        let (_, f) = run(&format!(
            "ok 1 a\n# fine\nnot ok 2 b\n{many}ok 3 c\n# fine\n"
        ));
        assert_eq!(f.len(), 13);
        assert_eq!(f[..3], ["b", "  | 0", "  | 1"]);
    }

    #[test]
    fn lateness_is_said_by_each_failed_case() {
        let of = |text: &str| {
            let mut p = Parser::new();
            for l in text.lines() {
                p.line(l);
            }
            p.lateness()
                .map(|l| l.iter().map(|s| s.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(
            of("not ok 1 a\n# late: 3 s\nok 2 b\n"),
            Some(vec!["3 s".into()])
        );
        // A message of another case does not count, nor one after a case that passed.
        assert_eq!(of("not ok 1 a\nnot ok 2 b\n# late: 3 s\n"), None);
        assert_eq!(of("not ok 1 a\nok 2 b\n# late: 3 s\n"), None);
        assert_eq!(of("ok 1 a\n"), Some(vec![]));
    }

    #[test]
    fn flat() {
        let (c, f) = run("TAP version 13\n1..3\nok 1 a\nnot ok 2 b\nok 3 c # SKIP no device\n");
        assert_eq!(c, counts(1, 1, 1));
        assert_eq!(f, ["b"]);
    }

    #[test]
    fn nested_counts_leaves() {
        let (c, _) = run(concat!(
            "KTAP version 1\n1..2\n",
            "  KTAP version 1\n  1..2\n  ok 1 x\n  not ok 2 y\n",
            "not ok 1 group\n",
            "ok 2 alone\n"
        ));
        assert_eq!(c, counts(2, 1, 0));
    }

    #[test]
    fn group_failing_by_itself_counts() {
        let (c, f) = run("1..1\n  1..1\n  ok 1 x\nnot ok 1 group\n");
        assert_eq!(c, counts(1, 1, 0));
        assert_eq!(f, ["group"]);
    }

    #[test]
    fn missing_results_fail() {
        let (c, f) = run("1..4\nok 1 a\n");
        assert_eq!(c, counts(1, 3, 0));
        assert_eq!(f, ["3 of 4 planned cases never reported"]);
    }

    #[test]
    fn missing_nested_results_fail_once() {
        let (c, _) = run("1..1\n  1..2\n  ok 1 x\nnot ok 1 group\n");
        assert_eq!(c, counts(1, 1, 0));
    }

    #[test]
    fn expected_failures_pass() {
        assert_eq!(run("not ok 1 a # XFAIL known\n").0, counts(1, 0, 0));
    }

    #[test]
    fn programs_may_talk_between() {
        let mut p = Parser::new();
        assert_eq!(
            p.line("okay, loading"),
            Event::Other("okay, loading".into())
        );
        assert_eq!(p.line("# note"), Event::Note("note".into()));
        assert_eq!(
            p.line("ok 1 - named"),
            Event::Case {
                outcome: Outcome::Pass,
                name: "named".into(),
                depth: 0
            }
        );
    }
}
