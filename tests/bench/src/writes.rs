// SPDX-License-Identifier: GPL-2.0

//! The plugin's notes of writes: cache lines, and which vCPU wrote to them by which instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};

/// The code that writes to a line: an instruction, and the block of a module that called its
/// function, or 0.
type Code = (u64, u64);

/// What an instruction did to a line in a window.
#[derive(Debug, Default)]
struct Noted {
    bytes: u64,
    moves: u64,
    counts: BTreeMap<usize, u64>,
}

/// Lines by address.
type Window = BTreeMap<u64, BTreeMap<Code, Noted>>;

/// The notes of one guest.
#[derive(Debug, Default)]
pub struct Writes(Vec<Window>);

/// What an instruction does to a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Writer {
    /// Its address.
    pub at: u64,
    /// The block of a module that called its function, if that is outside of modules, or 0.
    pub via: u64,
    /// The bytes of the line at which writes begin, a bit for each.
    pub bytes: u64,
    /// Writes per request after which the line was another vCPU's than before.
    pub moves: f64,
    /// Writes per request, by vCPU. Some are negative: what happened more often in the window with
    /// fewer requests.
    pub counts: Vec<f64>,
    /// Writes in both windows, by vCPU.
    pub seen: Vec<u64>,
}

/// A cache line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its address.
    pub address: u64,
    /// The code that writes to it.
    pub writers: Vec<Writer>,
}

impl Line {
    /// Writes per request, by vCPU.
    pub fn counts(&self) -> Vec<f64> {
        sum(self.writers.iter().map(|w| &w.counts[..]))
    }

    /// Writes in both windows, by vCPU.
    pub fn seen(&self) -> Vec<u64> {
        sum(self.writers.iter().map(|w| &w.seen[..]))
    }
}

/// The sum of each vCPU.
fn sum<'a, T: Copy + Default + AddAssign + 'a>(all: impl Iterator<Item = &'a [T]>) -> Vec<T> {
    let mut sum = Vec::new();
    for counts in all {
        sum.resize(counts.len().max(sum.len()), T::default());
        for (sum, n) in sum.iter_mut().zip(counts) {
            *sum += *n;
        }
    }
    sum
}

impl Writes {
    /// Reads the notes.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Self::parse(BufReader::new(file)).with_context(|| format!("in {}", path.display()))
    }

    fn parse(lines: impl BufRead) -> Result<Self> {
        let mut windows: Vec<Window> = Vec::new();
        let mut line = None;
        for (text, number) in lines.lines().zip(1..) {
            let text = text?;
            let bad = || format!("line {number}: \"{text}\"");
            let words: Vec<&str> = text.split(' ').collect();
            let hex = |word: &str| u64::from_str_radix(word, 16).with_context(bad);
            match words[..] {
                ["w", window, lost] => {
                    ensure!(window.parse() == Ok(windows.len()), bad());
                    ensure!(
                        lost == "0",
                        "{lost} writes were not noted in window {window}"
                    );
                    windows.push(Window::new());
                    line = None;
                }
                ["l", address] => line = Some(hex(address)?),
                ["p", at, via, bytes, moves, ref counts @ ..] => {
                    let window = windows.last_mut().with_context(bad)?;
                    let writers = window.entry(line.with_context(bad)?).or_default();
                    let noted = writers.entry((hex(at)?, hex(via)?)).or_default();
                    noted.bytes |= hex(bytes)?;
                    noted.moves += moves.parse::<u64>().with_context(bad)?;
                    for count in counts {
                        let (vcpu, n) = count.split_once(':').with_context(bad)?;
                        let vcpu = vcpu.parse().with_context(bad)?;
                        *noted.counts.entry(vcpu).or_default() +=
                            n.parse::<u64>().with_context(bad)?;
                    }
                }
                _ => bail!(bad()),
            }
        }
        Ok(Self(windows))
    }

    /// Writes per request: those in window `long` minus those in window `short`, divided by the
    /// difference of their requests.
    pub fn per_request(&self, short: usize, long: usize, requests: u64) -> Result<Vec<Line>> {
        let window = |n: usize| {
            self.0
                .get(n)
                .with_context(|| format!("there is no window {n}"))
        };
        let (short, long) = (window(short)?, window(long)?);
        let (no_line, nothing) = (BTreeMap::new(), Noted::default());
        let each = |long: u64, short: u64| (long as f64 - short as f64) / requests as f64;
        let mut lines = Vec::new();
        for &address in union(long, short) {
            let long = long.get(&address).unwrap_or(&no_line);
            let short = short.get(&address).unwrap_or(&no_line);
            let writers = union(long, short).into_iter().map(|code| {
                let long = long.get(code).unwrap_or(&nothing);
                let short = short.get(code).unwrap_or(&nothing);
                let last = long.counts.keys().chain(short.counts.keys()).max();
                let vcpus = 0..=last.copied().unwrap_or(0);
                let count = |of: &Noted, vcpu| of.counts.get(&vcpu).copied().unwrap_or(0);
                Writer {
                    at: code.0,
                    via: code.1,
                    bytes: long.bytes | short.bytes,
                    moves: each(long.moves, short.moves),
                    counts: vcpus
                        .clone()
                        .map(|vcpu| each(count(long, vcpu), count(short, vcpu)))
                        .collect(),
                    seen: vcpus
                        .map(|vcpu| count(long, vcpu) + count(short, vcpu))
                        .collect(),
                }
            });
            lines.push(Line {
                address,
                writers: writers.collect(),
            });
        }
        Ok(lines)
    }
}

/// The keys of either map.
fn union<'a, K: Ord, V>(one: &'a BTreeMap<K, V>, other: &'a BTreeMap<K, V>) -> BTreeSet<&'a K> {
    one.keys().chain(other.keys()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "w 0 0\nl ffff888000000fc0\np ffffffffc0000000 0 1 0 2:5\n\
                        l ffff888000001000\np ffffffffc0000000 0 1 0 0:2 1:1\n\
                        w 1 0\nl ffff888000001000\np ffffffffc0000000 0 101 10 0:12 1:21\n\
                        p ffffffff81000000 ffffffffc0000000 2 0 3:5\nl ffff888000001040\n";

    #[test]
    fn the_shorter_window_is_taken_off() {
        let lines = Writes::parse(TEXT.as_bytes())
            .unwrap()
            .per_request(0, 1, 10)
            .unwrap();
        // What is in the shorter window only is taken off as well.
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].counts(), [0.0, 0.0, -0.5]);
        let writers = &lines[1].writers;
        assert_eq!(writers[0].via, 0xffff_ffff_c000_0000);
        assert_eq!(writers[1].counts, [1.0, 2.0]);
        assert_eq!((writers[1].moves, writers[1].bytes), (1.0, 0x101));
        assert_eq!(lines[1].counts(), [1.0, 2.0, 0.0, 0.5]);
        assert_eq!(lines[1].seen(), [14, 22, 0, 5]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "w 1 0\n",
            "w 0 7\n",
            "w 0 0\np 1 2 3 4 0:1\n",
            "l 1000\np 1 2 3 4 0:1\n",
            "w 0 0\nl 1000\np 1 2 3 4 0\n",
            "x\n",
        ] {
            assert!(Writes::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
