// SPDX-License-Identifier: GPL-2.0

//! Lines of source, from the debug information of the modules of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

/// A section of code in a guest.
struct Section {
    address: u64,
    module: String,
    name: String,
}

/// Where the modules of a guest were, and their files.
pub struct Sources {
    sections: Vec<Section>,
    modules: PathBuf,
}

impl Sources {
    /// Reads where a guest had the sections: lines of module, section, address.
    pub fn read(sections: &Path, modules: &Path) -> Result<Self> {
        let text = fs::read_to_string(sections)
            .with_context(|| format!("cannot read {}", sections.display()))?;
        Ok(Self {
            sections: parse(&text).with_context(|| format!("in {}", sections.display()))?,
            modules: modules.to_owned(),
        })
    }

    /// The line of our own source for each address of code, where there is one.
    pub fn find(&self, code: &BTreeSet<u64>) -> Result<HashMap<u64, String>> {
        let mut wanted: BTreeMap<(&str, &str, u64), Vec<u64>> = BTreeMap::new();
        for &at in code {
            let after = self.sections.partition_point(|s| s.address <= at);
            if let Some(s) = after.checked_sub(1).map(|n| &self.sections[n]) {
                let key = (s.module.as_str(), s.name.as_str(), s.address);
                wanted.entry(key).or_default().push(at);
            }
        }
        let mut found = HashMap::new();
        for ((module, section, base), code) in wanted {
            let file = self
                .modules
                .join(format!("{}.ko", module.replace('_', "-")));
            if !file.exists() {
                continue;
            }
            let mut tool = Command::new("addr2line");
            tool.args(["-a", "-i", "-j", section, "-e"]).arg(&file);
            tool.args(code.iter().map(|at| format!("{:x}", at - base)));
            let out = tool.output().context("cannot run addr2line")?;
            ensure!(out.status.success(), "addr2line: {}", out.status);
            for (offset, line) in lines(&String::from_utf8_lossy(&out.stdout)) {
                found.insert(base + offset, line);
            }
        }
        Ok(found)
    }
}

fn parse(text: &str) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [module, name, address] = words[..] else {
            anyhow::bail!("bad line \"{line}\"");
        };
        sections.push(Section {
            address: u64::from_str_radix(address.trim_start_matches("0x"), 16)?,
            module: module.to_owned(),
            name: name.to_owned(),
        });
    }
    sections.sort_by_key(|s| s.address);
    Ok(sections)
}

/// Of what addr2line prints, for each address the innermost line that is in a source of ours: code
/// of core and of the kernel crate is inlined into most lines.
fn lines(text: &str) -> Vec<(u64, String)> {
    let mut found: Vec<(u64, String)> = Vec::new();
    let mut at = None;
    for line in text.lines() {
        if let Some(address) = line.strip_prefix("0x") {
            at = u64::from_str_radix(address, 16).ok();
            continue;
        }
        let ours = ["bindings/", "rtrs_core/", "rtrs_client/", "rtrs_server/"]
            .iter()
            .filter_map(|dir| Some(&line[line.find(&format!("/{dir}"))? + 1..]))
            .next();
        // There is also what bindgen has generated.
        let ours = ours.filter(|line| !line.contains("generated"));
        if let (Some(address), Some(line)) = (at, ours) {
            let line = line.split_whitespace().next().unwrap_or(line);
            found.push((address, line.to_owned()));
            at = None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_line_of_ours_counts() {
        let text = "0x0000000000000010\n/usr/lib/core/ptr.rs:7\n/b/x/bindings/place.rs:12\n\
                    /b/x/rtrs_client/link.rs:5 (discriminator 1)\n0x20\n??:0\n\
                    0x0000000000000030\n/b/x/rtrs_client/link.rs:9 (discriminator 2)\n";
        assert_eq!(
            lines(text),
            [
                (0x10, "bindings/place.rs:12".to_owned()),
                (0x30, "rtrs_client/link.rs:9".to_owned())
            ]
        );
    }

    #[test]
    fn sections_are_sorted() {
        let sections = parse("b .text 0xffffffffc0002000\na .text 0xffffffffc0001000\n").unwrap();
        assert_eq!(sections[0].module, "a");
        assert!(parse("a .text\n").is_err());
    }
}
