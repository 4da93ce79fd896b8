// SPDX-License-Identifier: GPL-2.0

//! The gate: the limits on the cost of the Rust modules.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::row::Row;

/// Percent above the reference at which the gate fails, and below it at which it asks for a new
/// one.
const TOLERANCE: f64 = 3.0;

/// The name of a row's first figure; the others are its events.
const INSTRUCTIONS: &str = "instructions";

/// A row and the limit of each figure.
struct Line {
    row: String,
    most: Vec<(String, f64)>,
}

/// Lines of "stack size direction always_invalidate CPUs: FIGURE NUMBER; FIGURE NUMBER...", of which
/// `instructions` is one; `#` begins a comment.
pub struct Reference(Vec<Line>);

impl Reference {
    /// Reads the reference.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .map(|line| Self::line(line).with_context(|| format!("bad line \"{line}\"")));
        Ok(Self(lines.collect::<Result<_>>()?))
    }

    fn line(line: &str) -> Result<Line> {
        let (row, figures) = line.split_once(": ").context("no figures")?;
        let mut most = Vec::new();
        for figure in figures.split("; ") {
            let (what, number) = figure.rsplit_once(' ').context("a figure without number")?;
            most.push((what.to_owned(), number.parse()?));
        }
        Ok(Line {
            row: row.to_owned(),
            most,
        })
    }

    /// One line per figure, and whether all are within the limits.
    pub fn judge(&self, rows: &[Row]) -> (Vec<String>, bool) {
        let mut good = !self.0.is_empty();
        let mut lines = Vec::new();
        for Line { row: name, most } in &self.0 {
            let row = rows.iter().find(|row| row.name.text() == *name);
            for (what, most) in most {
                let found = row.and_then(|row| match what.as_str() {
                    INSTRUCTIONS => Some(row.transport),
                    event => row.events.get(event).copied(),
                });
                let Some(found) = found else {
                    good = false;
                    lines.push(format!("{name}: {what}: not measured"));
                    continue;
                };
                let percent = (found / most - 1.0) * 100.0;
                let word = if percent > TOLERANCE {
                    good = false;
                    "TOO MUCH"
                } else if percent < -TOLERANCE {
                    "less: lower the reference"
                } else {
                    "ok"
                };
                lines.push(format!(
                    "{name}: {what} {found:.2}, reference {most} ({percent:+.1} %): {word}"
                ));
            }
        }
        (lines, good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Name;

    fn row(transport: f64) -> Row {
        let name = Name {
            cpus: 1,
            size: "4k".into(),
            direction: "read".into(),
            invalidate: "Y".into(),
            stack: "rust".into(),
        };
        Row {
            transport,
            ..Row::new(name)
        }
    }

    #[test]
    fn three_percent() {
        let reference =
            Reference::parse("# comment\nrust 4k read Y 1: instructions 1000\n").unwrap();
        assert!(reference.judge(&[row(1029.0)]).1);
        assert!(reference.judge(&[row(500.0)]).1);
        assert!(!reference.judge(&[row(1031.0)]).1);
        assert!(!reference.judge(&[]).1);
    }

    #[test]
    fn events_count_too() {
        let text = "rust 4k read Y 1: instructions 9; packets 2\n";
        let reference = Reference::parse(text).unwrap();
        let mut row = row(9.0);
        assert!(!reference.judge(&[row.clone()]).1, "not measured");
        row.events.insert("packets".into(), 2.05);
        assert!(reference.judge(&[row.clone()]).1);
        row.events.insert("packets".into(), 3.0);
        assert!(!reference.judge(&[row]).1);
    }

    #[test]
    fn nothing_to_compare_with_is_no_success() {
        assert!(!Reference::parse("").unwrap().judge(&[row(1.0)]).1);
        assert!(Reference::parse("rust 4k read Y 1: instructions many\n").is_err());
        assert!(Reference::parse("rust 4k read Y 1 1000\n").is_err());
    }
}
