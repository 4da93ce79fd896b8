// SPDX-License-Identifier: GPL-2.0

//! The functions at each address: `/proc/kallsyms` of the guest.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};

/// The name that stands for code outside of modules.
pub const VMLINUX: &str = "vmlinux";

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// Its first address.
    pub address: u64,
    /// The demangled name.
    pub name: String,
    /// Its module, or [`VMLINUX`].
    pub module: String,
    /// Whether it is Rust, or C that only Rust calls.
    pub rust: bool,
}

/// How far from its symbol a variable can reach. Where the next symbol is further away, other
/// memory lies between them.
const VARIABLE: u64 = 1 << 16;

/// All symbols of a guest, by address.
pub struct Symbols {
    code: Vec<Symbol>,
    data: Vec<Symbol>,
}

impl Symbols {
    /// Reads the symbols.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (mut code, mut data) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let bad = || format!("bad line \"{line}\"");
            let address = u64::from_str_radix(words.next().with_context(bad)?, 16)?;
            let kind = words.next().with_context(bad)?;
            let name = words.next().with_context(bad)?;
            let symbols = match kind {
                "t" | "T" | "w" | "W" => &mut code,
                "b" | "B" | "d" | "D" => &mut data,
                _ => continue,
            };
            let module = match words.next() {
                Some(word) => word.trim_matches(['[', ']']),
                None => VMLINUX,
            };
            symbols.push(Symbol {
                address,
                name: readable(name),
                module: module.to_owned(),
                rust: name.starts_with("_R") || name.starts_with("rust_helper_"),
            });
        }
        ensure!(
            code.iter().any(|s: &Symbol| s.address != 0),
            "addresses are hidden"
        );
        code.sort();
        data.sort();
        Ok(Self { code, data })
    }

    /// The function that contains an instruction.
    pub fn find(&self, address: u64) -> Option<&Symbol> {
        let after = self.code.partition_point(|s| s.address <= address);
        self.code.get(after.checked_sub(1)?)
    }

    /// The variable that a line of 64 bytes has, wholly or in part.
    pub fn find_data(&self, line: u64) -> Option<&Symbol> {
        let after = self.data.partition_point(|s| s.address < line + 64);
        let symbol = self.data.get(after.checked_sub(1)?)?;
        (line < symbol.address + VARIABLE).then_some(symbol)
    }
}

/// The name without hashes, crate numbers and the suffixes of compilers.
fn readable(name: &str) -> String {
    let name = name.split_once(".llvm.").map_or(name, |(before, _)| before);
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found() {
        let symbols = Symbols::parse(
            "ffffffff81000010 T second\nffffffff81000000 t first\nffffffff81000008 d data\n\
             ffffffffc0000000 t _RNvNtCs123_4core3foo3bar\t[rtrs_core]\n",
        )
        .unwrap();
        let name = |at| {
            symbols
                .find(at)
                .map(|s| (s.name.as_str(), s.module.as_str()))
        };
        assert_eq!(name(0xffffffff80ffffff), None);
        assert_eq!(name(0xffffffff8100000f), Some(("first", VMLINUX)));
        assert_eq!(name(0xffffffff81000010), Some(("second", VMLINUX)));
        assert_eq!(
            name(0xffffffffc0000001),
            Some(("core::foo::bar", "rtrs_core"))
        );
        assert!(symbols.find(0xffffffffc0000001).unwrap().rust);
    }

    #[test]
    fn variables_are_found() {
        let symbols =
            Symbols::parse("ffffffff81000000 T code\nffffffff82000010 d first\n").unwrap();
        let name = |at| symbols.find_data(at).map(|s| s.name.as_str());
        assert_eq!(name(0xffffffff81ffffc0), None);
        assert_eq!(name(0xffffffff82000000), Some("first"));
        assert_eq!(name(0xffffffff82001000), Some("first"));
        assert_eq!(name(0xffffffff83000000), None);
    }

    #[test]
    fn hidden_addresses_are_no_use() {
        assert!(Symbols::parse("0000000000000000 T a\n0000000000000000 T b\n").is_err());
    }
}
