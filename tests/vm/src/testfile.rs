// SPDX-License-Identifier: GPL-2.0

//! The tests: shell scripts whose first comment has their requirements.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

/// Number of guests that a test needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// One guest, client and server in one kernel.
    #[default]
    Single,
    /// Two guests, "server" and "client", joined by links.
    Pair,
}

impl Topology {
    /// The word in the header.
    pub fn word(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Pair => "pair",
        }
    }
}

/// A test and its requirements.
#[derive(Clone, Debug)]
pub struct Test {
    /// File name without the suffix.
    pub name: String,
    /// The script.
    pub path: PathBuf,
    /// Description in one line.
    pub desc: String,
    /// The guests.
    pub topology: Topology,
    /// Limit of the whole run on a stock kernel, in seconds.
    pub timeout: u64,
    /// Further arguments for the guest's kernel.
    pub append: String,
    /// Virtual CPUs, if not the default.
    pub smp: Option<u32>,
    /// Memory, if not the default.
    pub mem: Option<String>,
    /// Whether it must not run beside other tests, as it measures times.
    pub alone: bool,
    /// Whether it mostly waits, and leaves the processors to other tests.
    pub waits: bool,
    /// Its duration on a stock kernel, in seconds, if the header has it.
    pub seconds: u64,
    /// Whether it runs when no test is named.
    pub by_default: bool,
}

const TIMEOUT: u64 = 120;

/// Reads the header of a script; None if it has none, and so is no test.
pub fn parse(path: &Path) -> Result<Option<Test>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    parse_text(&text, name, path)
}

pub(crate) fn parse_text(text: &str, name: String, path: &Path) -> Result<Option<Test>> {
    let mut test = Test {
        name,
        path: path.to_path_buf(),
        desc: String::new(),
        topology: Topology::default(),
        timeout: TIMEOUT,
        append: String::new(),
        smp: None,
        mem: None,
        alone: false,
        waits: false,
        seconds: 0,
        by_default: true,
    };
    let mut is_test = false;

    for line in text.lines().take_while(|l| l.starts_with('#')) {
        let Some((key, value)) = line.trim_start_matches('#').trim().split_once(':') else {
            continue;
        };
        let value = value.trim();
        let bad = || format!("{}: bad header \"{line}\"", path.display());
        match key {
            "topology" => {
                is_test = true;
                test.topology = match value {
                    "single" => Topology::Single,
                    "pair" => Topology::Pair,
                    _ => bail!(bad()),
                };
            }
            "timeout" => test.timeout = value.parse().with_context(bad)?,
            "append" => test.append = value.to_string(),
            "desc" => test.desc = value.to_string(),
            "smp" => test.smp = Some(value.parse().with_context(bad)?),
            "mem" => test.mem = Some(value.to_string()),
            "alone" => test.alone = value == "yes",
            "waits" => test.waits = value == "yes",
            "seconds" => test.seconds = value.parse().with_context(bad)?,
            "default" => test.by_default = value != "no",
            _ => {}
        }
    }
    Ok(is_test.then_some(test))
}

/// All tests of a directory, by name.
pub fn all(dir: &Path) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "sh") {
            tests.extend(parse(&path)?);
        }
    }
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tests)
}

/// The tests that `names` select ('*' stands for anything), or the default ones.
pub fn select(tests: Vec<Test>, names: &[String]) -> Result<Vec<Test>> {
    if names.is_empty() {
        return Ok(tests.into_iter().filter(|t| t.by_default).collect());
    }
    let mut chosen: Vec<Test> = Vec::new();
    for name in names {
        let name = name.strip_suffix(".sh").unwrap_or(name);
        let name = name.rsplit('/').next().unwrap_or(name);
        let found: Vec<&Test> = tests.iter().filter(|t| glob(name, &t.name)).collect();
        if found.is_empty() {
            let known: Vec<&str> = tests.iter().map(|t| t.name.as_str()).collect();
            bail!("no test named {name}; there are: {}", known.join(" "));
        }
        for t in found {
            if !chosen.iter().any(|c| c.name == t.name) {
                chosen.push(t.clone());
            }
        }
    }
    Ok(chosen)
}

/// Whether `name` matches, with '*' for anything.
pub fn glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else {
                return false;
            };
            (0..=rest.len())
                .filter(|&i| rest.is_char_boundary(i))
                .any(|i| glob(tail, &rest[i..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Test>> {
        parse_text(text, "t".into(), Path::new("t.sh"))
    }

    #[test]
    fn header() {
        let t = parsed(
            "#!/bin/bash\n# SPDX-License-Identifier: GPL-2.0\n#\n# desc: does: things\n\
             # topology: pair\n# timeout: 77\n# append: a=b c\n\n# topology: nonsense\n",
        )
        .unwrap()
        .unwrap();
        assert_eq!(t.topology, Topology::Pair);
        assert_eq!(t.timeout, 77);
        assert_eq!(t.append, "a=b c");
        assert_eq!(t.desc, "does: things");
        assert!(t.by_default && !t.alone && !t.waits);
        let t = parsed("# topology: single\n# waits: yes\n# alone: yes\n# seconds: 42\n")
            .unwrap()
            .unwrap();
        assert_eq!((t.waits, t.alone, t.seconds), (true, true, 42));
    }

    #[test]
    fn helpers_are_no_tests() {
        assert!(parsed("#!/bin/bash\n# just a script\n").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_told() {
        assert!(parsed("# topology: ring\n").is_err());
        assert!(parsed("# topology: single\n# timeout: soon\n").is_err());
    }

    #[test]
    fn globs() {
        assert!(glob("c-*", "c-anchor"));
        assert!(glob("*", ""));
        assert!(glob("a*b*c", "axxbyyc"));
        assert!(!glob("a*b", "axxbc"));
        assert!(!glob("c", "cc"));
    }
}
