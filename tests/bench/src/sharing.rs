// SPDX-License-Identifier: GPL-2.0

//! Which cache lines of ours move between vCPUs, and what writes to them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use anyhow::Result;

use crate::counts::Counts;
use crate::row::{self, Pair, TRANSPORT};
use crate::source::Sources;
use crate::symbols::{Symbol, Symbols, VMLINUX};
use crate::writes::{Line, Writer, Writes};

/// Writes per request of a vCPU that count.
const HOT: f64 = 0.05;
/// The part that a vCPU of note has of a line's writes.
const NOTE: f64 = 0.05;
/// The part that a writer of note has of the writes of a line's busiest one.
const BUSY: f64 = 0.35;
/// Kernel stacks have this size, and begin at a multiple of it.
const STACK: u64 = 1 << 14;

/// What a line is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Stack,
    PerCpu,
    Static(String),
    Heap,
}

/// A writer, by function and line of source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    name: String,
    source: String,
}

#[derive(Clone, Debug, Default)]
struct Share {
    bytes: u64,
    moves: f64,
    writes: f64,
}

/// Lines with the same writers of note: the same field of many objects, as a rule.
#[derive(Debug, Default)]
struct Group {
    lines: usize,
    /// Lines that at least two vCPUs write to, at least `HOT` times per request each.
    hot: usize,
    /// The most vCPUs with a part of note of the writes of a line.
    vcpus: usize,
    share: Share,
    writers: BTreeMap<Site, Share>,
}

/// What is known of the code of a guest.
struct Code<'a> {
    symbols: &'a Symbols,
    texts: HashMap<u64, &'a str>,
    sources: HashMap<u64, String>,
}

impl Code<'_> {
    fn ours(&self, at: u64) -> bool {
        self.symbols.find(at).is_some_and(|s| {
            TRANSPORT.contains(&s.module.as_str()) || (s.module == VMLINUX && s.rust)
        })
    }

    fn is(&self, writer: &Writer, what: impl Fn(&str) -> bool) -> bool {
        self.texts.get(&writer.at).is_some_and(|text| what(text))
    }

    /// Whether a line is on a page of a stack is told by the pushes and calls of modules.
    fn stacks(&self, lines: &[Line]) -> HashSet<u64> {
        let pushes = |text: &str| text.starts_with("push") || text.starts_with("call");
        let on_stack = |line: &&Line| line.writers.iter().any(|w| self.is(w, pushes));
        let lines = lines.iter().filter(on_stack);
        lines.map(|line| line.address / STACK).collect()
    }

    fn place(&self, line: &Line, stacks: &HashSet<u64>) -> Place {
        if stacks.contains(&(line.address / STACK)) {
            return Place::Stack;
        }
        if line
            .writers
            .iter()
            .any(|w| self.is(w, |t| t.contains("%gs:")))
        {
            return Place::PerCpu;
        }
        match self.symbols.find_data(line.address) {
            Some(symbol) => Place::Static(name(symbol)),
            None => Place::Heap,
        }
    }

    fn site(&self, writer: &Writer) -> Site {
        let called = |at| self.symbols.find(at).map_or("?".to_owned(), name);
        Site {
            name: match writer.via {
                0 => called(writer.at),
                via => format!("{} < {}", called(writer.at), called(via)),
            },
            source: [writer.at, writer.via]
                .iter()
                .find_map(|at| self.sources.get(at).cloned())
                .unwrap_or_default(),
        }
    }
}

/// The end of a function's name, with its module.
fn name(symbol: &Symbol) -> String {
    let module = symbol
        .module
        .strip_prefix("rtrs_")
        .unwrap_or(&symbol.module);
    // What is in angle brackets may have colons, so the name is cut outside of them only.
    let (mut depth, mut from, mut last) = (0, 0, 0);
    for (at, c) in symbol.name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ':' if depth == 0 && symbol.name[at..].starts_with("::") => {
                (from, last) = (last, at + 2)
            }
            _ => (),
        }
    }
    format!("{module}: {}", &symbol.name[from..])
}

fn groups(code: &Code<'_>, lines: &[Line]) -> BTreeMap<(Place, Vec<Site>), Group> {
    let stacks = code.stacks(lines);
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    for line in lines {
        if !line.writers.iter().any(|w| code.ours(w.at)) {
            continue;
        }
        let seen = line.seen();
        let all: u64 = seen.iter().sum();
        let vcpus = seen.iter().filter(|n| **n as f64 > NOTE * all as f64);
        let vcpus = vcpus.count();
        if vcpus < 2 {
            continue;
        }
        let place = code.place(line, &stacks);
        let mut of_note: BTreeMap<Site, u64> = BTreeMap::new();
        // Frames of all functions lie on each other on a stack.
        if place != Place::Stack {
            for writer in &line.writers {
                *of_note.entry(code.site(writer)).or_default() += writer.seen.iter().sum::<u64>();
            }
            let most = of_note.values().copied().max().unwrap_or(0);
            of_note.retain(|_, n| *n as f64 >= BUSY * most as f64);
        }
        let group = groups
            .entry((place, of_note.into_keys().collect()))
            .or_default();
        group.lines += 1;
        group.hot += usize::from(line.counts().iter().filter(|n| **n >= HOT).count() >= 2);
        group.vcpus = group.vcpus.max(vcpus);
        for writer in &line.writers {
            let share = group.writers.entry(code.site(writer)).or_default();
            for share in [share, &mut group.share] {
                share.bytes |= writer.bytes;
                share.moves += writer.moves;
                share.writes += writer.counts.iter().sum::<f64>();
            }
        }
    }
    groups
}

fn report(code: &Code<'_>, lines: &[Line], least: f64) -> String {
    let groups = groups(code, lines);
    let moves = |stack: bool| -> f64 {
        let of = groups
            .iter()
            .filter(|((place, _), _)| (*place == Place::Stack) == stack);
        of.map(|(_, group)| group.share.moves).sum::<f64>() + 0.0
    };
    let mut out = format!(
        "  {:.2} moves per request, and {:.2} of stacks\n   moves  writes   lines  hot vCPUs\n",
        moves(false),
        moves(true),
    );
    let mut groups: Vec<_> = groups
        .iter()
        .filter(|((place, _), group)| {
            *place != Place::Stack && (group.share.moves >= least || group.hot > 0)
        })
        .collect();
    groups.sort_by(|a, b| b.1.share.moves.total_cmp(&a.1.share.moves));
    for ((place, _), group) in groups {
        let place = match place {
            Place::Static(symbol) => symbol.as_str(),
            Place::PerCpu => "per CPU",
            _ => "",
        };
        let Share { moves, writes, .. } = group.share;
        out += &format!(
            "{moves:8.2}{writes:8.2}{:8}{:5}{:6}  {place}\n",
            group.lines, group.hot, group.vcpus,
        );
        let mut writers: Vec<_> = group.writers.iter().collect();
        writers.sort_by(|a, b| b.1.moves.total_cmp(&a.1.moves));
        for (site, share) in writers {
            if share.moves < least / 2.0 && share.writes < least {
                continue;
            }
            out += &format!(
                "{:8.2}{:8.2}    {:12} {}  {}\n",
                share.moves,
                share.writes,
                bytes(share.bytes),
                site.name,
                site.source
            );
        }
    }
    out
}

/// The bytes at which writes begin, in hex; of many the first and the last one.
fn bytes(mask: u64) -> String {
    let bytes: Vec<String> = (0..64)
        .filter(|bit| (mask >> bit) & 1 == 1)
        .map(|bit| format!("{bit:02x}"))
        .collect();
    match &bytes[..] {
        [first, .., last] if bytes.len() > 4 => format!("{first}..{last}"),
        _ => bytes.join(","),
    }
}

fn row(
    pair: &Pair,
    dir: &Path,
    counts: &Counts,
    writes: &Writes,
    modules: Option<&Path>,
    least: f64,
) -> Result<String> {
    let lines = writes.per_request(pair.short, pair.long, pair.requests)?;
    let symbols = Symbols::read(&dir.join(format!("symbols-{}", pair.suffix)))?;
    let insns = counts.blocks.values().flatten();
    let mut code = Code {
        symbols: &symbols,
        texts: insns
            .map(|insn| (insn.address, insn.text.as_str()))
            .collect(),
        sources: HashMap::new(),
    };
    let writers = || lines.iter().flat_map(|line| &line.writers);
    let at: BTreeSet<u64> = writers()
        .flat_map(|w| [w.at, w.via])
        .filter(|at| code.ours(*at))
        .collect();
    if let Some(modules) = modules {
        let sections = dir.join(format!("sections-{}", pair.suffix));
        code.sources = Sources::read(&sections, modules)?.find(&at)?;
    }
    let name = pair.name.text();
    Ok(format!("{name}\n{}\n", report(&code, &lines, least)))
}

/// The lines that more than one vCPU writes to, for each row of a guest. Lines of source are there
/// for modules in `modules`, if it is the Rust stack; groups with fewer than `least` moves are left
/// out.
pub fn read(dir: &Path, modules: &Path, least: f64) -> Result<String> {
    let counts = Counts::read(&dir.join("counts"))?;
    let writes = Writes::read(&dir.join("writes"))?;
    let mut out = String::new();
    for pair in row::pairs(dir)? {
        let modules = (pair.name.stack == "rust").then_some(modules);
        out += &row(&pair, dir, &counts, &writes, modules, least)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u64 = 0xffff_ffff_c000_0000;
    const PUSH: u64 = OURS + 8;
    const PER_CPU: u64 = OURS + 16;
    const OTHER: u64 = OURS + 0x100;
    const THEIRS: u64 = 0xffff_ffff_c000_1000;
    const LOCK: u64 = 0xffff_ffff_8100_0000;
    const SYMBOLS: &str = "ffffffff81000000 T lock\nffffffffc0000000 t fly\t[rtrs_client]\n\
                           ffffffffc0000100 t other\t[rtrs_client]\nffffffffc0001000 t rxe\t[rdma_rxe]\n\
                           ffffffffc0002000 d COUNT\t[rtrs_client]\n";

    fn writer(at: u64, via: u64, moves: f64, counts: &[f64]) -> Writer {
        Writer {
            at,
            via,
            bytes: 1,
            moves,
            counts: counts.to_vec(),
            seen: counts.iter().map(|n| (n * 1000.0) as u64).collect(),
        }
    }

    fn line(address: u64, writers: Vec<Writer>) -> Line {
        Line { address, writers }
    }

    fn with_code<R>(f: impl FnOnce(&Code<'_>) -> R) -> R {
        let symbols = Symbols::parse(SYMBOLS).unwrap();
        f(&Code {
            symbols: &symbols,
            texts: HashMap::from([(PUSH, "pushq %rbp"), (PER_CPU, "addq $1, %gs:(%rax)")]),
            sources: HashMap::from([(OURS, "a.rs:1".to_owned())]),
        })
    }

    #[test]
    fn lines_with_the_same_writers_are_one_group() {
        let both = |rare| {
            let rxe = writer(THEIRS, 0, 0.5, &[0.0, 0.5]);
            vec![
                writer(OURS, 0, 0.5, &[0.5]),
                rxe,
                writer(OTHER, 0, 0.0, &[rare]),
            ]
        };
        // What is rare does not matter, and what another vCPU does now and then does not either.
        let lines = [
            line(0x1000, both(0.0)),
            line(0x5000, both(0.01)),
            line(0x9000, vec![writer(OURS, 0, 0.0, &[1.0, 0.01])]),
        ];
        with_code(|code| {
            let groups = groups(code, &lines);
            assert_eq!(groups.len(), 1);
            let group = groups.values().next().unwrap();
            assert_eq!((group.lines, group.hot, group.vcpus), (2, 2, 2));
            assert_eq!(group.share.moves, 2.0);
            let text = report(code, &lines, 0.05);
            assert!(text.contains("2.00 moves per request, and 0.00"), "{text}");
            assert!(text.contains("00           client: fly  a.rs:1"), "{text}");
            assert!(text.contains("rdma_rxe: rxe"), "{text}");
            assert!(!text.contains("client: other"), "{text}");
        });
    }

    #[test]
    fn lines_of_one_vcpu_or_of_others_are_left_out() {
        let lines = [
            line(0x1000, vec![writer(OURS, 0, 0.0, &[1.0])]),
            line(0x2000, vec![writer(THEIRS, 0, 1.0, &[1.0, 1.0])]),
            line(0x3000, vec![writer(LOCK, OURS, 1.0, &[1.0, 1.0])]),
            line(0x4000, vec![writer(OURS, 0, 0.0, &[1.0, 0.01])]),
        ];
        with_code(|code| assert!(groups(code, &lines).is_empty()));
    }

    #[test]
    fn places_are_told_apart() {
        let two = |at| vec![writer(at, 0, 1.0, &[1.0, 1.0])];
        let lines = [
            line(0x10000, two(PUSH)),
            line(0x13000, two(OURS)),
            line(0x14000, two(OURS)),
            line(0x20000, two(PER_CPU)),
            line(0xffff_ffff_c000_2000, two(OURS)),
        ];
        with_code(|code| {
            let groups = groups(code, &lines);
            let of = |place| -> Vec<usize> {
                let same = groups.iter().filter(|((p, _), _)| *p == place);
                same.map(|(_, g)| g.lines).collect()
            };
            assert_eq!(of(Place::Stack), [2]);
            assert_eq!(of(Place::Heap), [1]);
            assert_eq!(of(Place::PerCpu), [1]);
            assert_eq!(of(Place::Static("client: COUNT".into())), [1]);
        });
    }

    #[test]
    fn bytes_are_short() {
        assert_eq!(bytes(1 | (1 << 8)), "00,08");
        assert_eq!(bytes(u64::MAX), "00..3f");
    }

    #[test]
    fn names_are_short() {
        let named = |text: &str| {
            name(&Symbol {
                address: 0,
                name: text.to_owned(),
                module: "rtrs_client".to_owned(),
                rust: true,
            })
        };
        assert_eq!(named("fly"), "client: fly");
        assert_eq!(named("a::b::C::fly"), "client: C::fly");
        assert_eq!(
            named("a::<b::C as d::E>::fly"),
            "client: <b::C as d::E>::fly"
        );
    }
}
