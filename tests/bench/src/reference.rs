// SPDX-License-Identifier: GPL-2.0

//! The gate: what our modules may cost.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::row::Row;

/// Percent above the reference that fail, and percent below that ask for a new one.
const TOLERANCE: f64 = 3.0;

/// Lines of "stack size direction always_invalidate CPUs INSTRUCTIONS"; `#` begins a comment.
pub struct Reference(Vec<(String, f64)>);

impl Reference {
    /// Reads it.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = Vec::new();
        for line in text
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            let bad = || format!("bad line \"{line}\"");
            let (name, number) = line.rsplit_once(' ').with_context(bad)?;
            lines.push((
                name.trim_end().to_owned(),
                number.parse().with_context(bad)?,
            ));
        }
        Ok(Self(lines))
    }

    /// One line per reference, and whether all is well.
    pub fn judge(&self, rows: &[Row]) -> (Vec<String>, bool) {
        let mut good = true;
        let mut lines = Vec::new();
        for (name, limit) in &self.0 {
            let Some(row) = rows.iter().find(|row| row.name.text() == *name) else {
                good = false;
                lines.push(format!("{name}: not measured"));
                continue;
            };
            let percent = (row.transport / limit - 1.0) * 100.0;
            let word = if percent > TOLERANCE {
                good = false;
                "TOO MUCH"
            } else if percent < -TOLERANCE {
                "less: lower the reference"
            } else {
                "ok"
            };
            lines.push(format!(
                "{name}: {:.0} instructions, reference {limit:.0} ({percent:+.1} %): {word}",
                row.transport
            ));
        }
        (lines, good && !self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Name;

    fn row(transport: f64) -> Row {
        Row {
            name: Name {
                cpus: 1,
                size: "4k".into(),
                direction: "read".into(),
                invalidate: "Y".into(),
                stack: "rust".into(),
            },
            kernel: 0.0,
            transport,
            helpers: 0.0,
            modules: Default::default(),
            kinds: Default::default(),
            events: Default::default(),
            functions: Vec::new(),
        }
    }

    #[test]
    fn three_percent() {
        let reference = Reference::parse("# comment\nrust 4k read Y 1 1000\n").unwrap();
        assert!(reference.judge(&[row(1029.0)]).1);
        assert!(reference.judge(&[row(500.0)]).1);
        assert!(!reference.judge(&[row(1031.0)]).1);
        assert!(!reference.judge(&[]).1);
    }

    #[test]
    fn nothing_to_compare_with_is_no_success() {
        assert!(!Reference::parse("").unwrap().judge(&[row(1.0)]).1);
        assert!(Reference::parse("rust 4k read Y 1 many\n").is_err());
    }
}
