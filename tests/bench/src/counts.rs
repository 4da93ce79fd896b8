// SPDX-License-Identifier: GPL-2.0

//! The plugin's output: blocks of code, and how often each ran in each window.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};

/// An instruction of the kernel.
#[derive(Clone, Debug)]
pub struct Insn {
    /// Its address.
    pub address: u64,
    /// Its disassembly, empty outside of modules.
    pub text: String,
}

/// One window.
#[derive(Debug, Default)]
pub struct Window {
    /// Instructions in user space.
    pub user: u64,
    /// Executions, by block.
    pub blocks: HashMap<usize, u64>,
}

/// The output of one guest.
#[derive(Debug, Default)]
pub struct Counts {
    /// Instructions, by block.
    pub blocks: HashMap<usize, Vec<Insn>>,
    /// Windows, in the order in which they were opened.
    pub windows: Vec<Window>,
}

impl Counts {
    /// Reads the output.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Self::parse(BufReader::new(file)).with_context(|| format!("in {}", path.display()))
    }

    fn parse(lines: impl BufRead) -> Result<Self> {
        let mut counts = Self::default();
        let mut block = None;
        for (line, at) in lines.lines().zip(1..) {
            let line = line?;
            let bad = || format!("line {at}: \"{line}\"");
            let (kind, rest) = line.split_once(' ').with_context(bad)?;
            match kind {
                "b" => block = Some(rest.parse().with_context(bad)?),
                "i" => {
                    let (address, text) = rest.split_once(' ').with_context(bad)?;
                    let address = u64::from_str_radix(address, 16).with_context(bad)?;
                    let text = text.to_owned();
                    let block = block.with_context(bad)?;
                    let insns: &mut Vec<Insn> = counts.blocks.entry(block).or_default();
                    insns.push(Insn { address, text });
                }
                "w" => {
                    let number: usize = rest.parse().with_context(bad)?;
                    ensure!(number == counts.windows.len(), bad());
                    counts.windows.push(Window::default());
                }
                "c" => {
                    let (slot, count) = rest.split_once(' ').with_context(bad)?;
                    let slot = slot.parse().with_context(bad)?;
                    ensure!(counts.blocks.contains_key(&slot), bad());
                    let count = count.parse().with_context(bad)?;
                    let window = counts.windows.last_mut().with_context(bad)?;
                    window.blocks.insert(slot, count);
                }
                "u" => {
                    let window = counts.windows.last_mut().with_context(bad)?;
                    window.user = rest.parse().with_context(bad)?;
                }
                _ => bail!(bad()),
            }
        }
        Ok(counts)
    }

    /// Executions of each instruction per request: those in window `long` minus those in window
    /// `short`, divided by the difference of their requests. Some are negative: code that has
    /// nothing to do with requests.
    pub fn per_request(
        &self,
        short: usize,
        long: usize,
        requests: u64,
    ) -> Result<Vec<(&Insn, f64)>> {
        let window = |n: usize| {
            self.windows
                .get(n)
                .with_context(|| format!("there is no window {n}"))
        };
        let (short, long) = (window(short)?, window(long)?);
        let mut slots: Vec<usize> = long
            .blocks
            .keys()
            .chain(short.blocks.keys())
            .copied()
            .collect();
        slots.sort_unstable();
        slots.dedup();
        let mut insns = Vec::new();
        for slot in slots {
            let count = |w: &Window| w.blocks.get(&slot).copied().unwrap_or(0) as f64;
            let each = (count(long) - count(short)) / requests as f64;
            insns.extend(self.blocks[&slot].iter().map(|insn| (insn, each)));
        }
        Ok(insns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "b 1\ni ffffffff81000000 \nb 2\ni ffffffffc0000000 push %rbp\n\
                        i ffffffffc0000001 ret\nw 0\nu 7\nc 1 10\nc 2 5\nw 1\nc 2 25\n";

    #[test]
    fn a_window_without_another() {
        let counts = Counts::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(counts.windows[0].user, 7);
        let insns = counts.per_request(0, 1, 10).unwrap();
        let each: Vec<f64> = insns.iter().map(|(_, n)| *n).collect();
        assert_eq!(each, [-1.0, 2.0, 2.0]);
        assert_eq!(insns[2].0.text, "ret");
        assert!(counts.per_request(1, 2, 10).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["x 1\n", "w 1\n", "w 0\nc 3 1\n", "i 12 nop\n", "b\n"] {
            assert!(Counts::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
