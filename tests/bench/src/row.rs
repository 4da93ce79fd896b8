// SPDX-License-Identifier: GPL-2.0

//! The cost of one kind of request on one stack.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::counts::{Counts, Insn};
use crate::kind::Kind;
use crate::symbols::{Symbols, VMLINUX};

/// Modules that carry requests from host to host.
pub const TRANSPORT: [&str; 5] = [
    "rtrs_client",
    "rtrs_core",
    "rtrs_server",
    "nvme_rdma",
    "nvmet_rdma",
];

/// Functions of soft RoCE that are entered once per event. Work requests that are sent have no such
/// function.
pub const EVENTS: [(&str, &str); 5] = [
    ("doorbells, send", "rxe_post_send"),
    ("doorbells, receive", "rxe_post_recv"),
    ("work requests, receive", "post_one_recv"),
    ("completions", "rxe_cq_post"),
    ("packets", "rxe_xmit_packet"),
];

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    /// Processors of the guest.
    pub cpus: u32,
    /// Block size, "4k" or "64k".
    pub size: String,
    /// "read" or "write".
    pub direction: String,
    /// always_invalidate: "Y", "N", or "-".
    pub invalidate: String,
    /// "rust", "c" or "nvme"; of two guests, that of the client and that of the server, as
    /// "rust/c".
    pub stack: String,
}

impl Name {
    /// The name as text, for output and in the file of references.
    pub fn text(&self) -> String {
        let Self {
            cpus,
            size,
            direction,
            invalidate,
            stack,
        } = self;
        format!("{stack} {size} {direction} {invalidate} {cpus}")
    }
}

/// A function, per request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// Its module.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Instructions of its own.
    pub instructions: f64,
    /// Executions of its first instruction.
    pub entries: f64,
}

/// One row, all figures per request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The row's name.
    pub name: Name,
    /// Instructions in the whole kernel.
    pub kernel: f64,
    /// Instructions of the transport's modules and of the helpers that they call.
    pub transport: f64,
    /// Of these, helpers: Rust in vmlinux and C that only Rust calls.
    pub helpers: f64,
    /// Instructions by module.
    pub modules: BTreeMap<String, f64>,
    /// The transport's instructions by kind.
    pub kinds: BTreeMap<Kind, f64>,
    /// Work requests, doorbells, completions, packets.
    pub events: BTreeMap<String, f64>,
    /// Functions of the transport and helpers, most expensive first.
    pub functions: Vec<Function>,
    /// The same for the rest of the kernel.
    #[serde(skip)]
    pub others: Vec<Function>,
}

impl Row {
    /// A row in which nothing was counted yet.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            kernel: 0.0,
            transport: 0.0,
            helpers: 0.0,
            modules: BTreeMap::new(),
            kinds: BTreeMap::new(),
            events: BTreeMap::new(),
            functions: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds what another guest did for the same request.
    pub fn add(&mut self, other: &Self) {
        fn add<K: Clone + Ord>(to: &mut BTreeMap<K, f64>, from: &BTreeMap<K, f64>) {
            for (key, n) in from {
                *to.entry(key.clone()).or_default() += n;
            }
        }
        self.kernel += other.kernel;
        self.transport += other.transport;
        self.helpers += other.helpers;
        add(&mut self.modules, &other.modules);
        add(&mut self.kinds, &other.kinds);
        add(&mut self.events, &other.events);
        self.functions.extend(other.functions.iter().cloned());
        self.others.extend(other.others.iter().cloned());
    }

    /// How often an event happened.
    pub fn event(&self, what: &str) -> f64 {
        self.events.get(what).copied().unwrap_or(0.0)
    }

    /// Adds the rest of the kernel to the functions.
    pub fn add_others(&mut self) {
        self.functions.append(&mut self.others);
        self.functions
            .sort_by(|a, b| b.instructions.total_cmp(&a.instructions));
    }
}

/// Reads the rows of a guest from the plugin's output and the files of guest.sh.
pub fn read(dir: &Path) -> Result<Vec<Row>> {
    read_guest(dir, dir)
}

/// The rows of `dir`, with the counts of the guest whose files are in `guest`.
pub fn read_guest(dir: &Path, guest: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for_each(dir, guest, |name, insns, symbols| {
        rows.push(row(name, insns, symbols))
    })?;
    Ok(rows)
}

/// The instructions of the functions with a name that ends in `function`, and how often each ran
/// per request of row `row`.
pub fn annotate(dir: &Path, row: &str, function: &str) -> Result<String> {
    let mut text = String::new();
    for_each(dir, dir, |name, insns, symbols| {
        if name.text() != row {
            return;
        }
        let mut found: BTreeMap<u64, (f64, &str, &str)> = BTreeMap::new();
        for &(insn, n) in insns {
            let Some(symbol) = symbols.find(insn.address) else {
                continue;
            };
            if symbol.name.ends_with(function) && symbol.module != VMLINUX {
                let entry = found.entry(insn.address);
                entry.or_insert((0.0, &insn.text, &symbol.name)).0 += n;
            }
        }
        let mut last = "";
        for (at, (n, insn, symbol)) in found {
            if symbol != last {
                text += &format!("{symbol}:\n");
                last = symbol;
            }
            text += &format!("{n:8.2}  {at:x}  {insn}\n");
        }
    })?;
    Ok(text)
}

/// The two windows of a row.
pub struct Pair {
    /// The row's name.
    pub name: Name,
    /// The window with fewer requests.
    pub short: usize,
    /// The window with more.
    pub long: usize,
    /// How many more.
    pub requests: u64,
    /// What names of files have in the end that belong to both.
    pub suffix: String,
}

/// The rows that a guest counted.
pub fn pairs(dir: &Path) -> Result<Vec<Pair>> {
    ensure!(
        dir.join("complete").exists(),
        "the guest of {} did not get to its end",
        dir.display()
    );
    let list = fs::read_to_string(dir.join("rows")).context("cannot read the list of rows")?;
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let mut pairs = Vec::new();
    for (pair, n) in lines.chunks(2).zip(0..) {
        let [short, long] = pair else {
            anyhow::bail!("a window without another");
        };
        let [stack, size, direction, invalidate, cpus, _, suffix] = short[..] else {
            anyhow::bail!("bad line of rows");
        };
        let requests = |line: &[&str]| -> Result<u64> { Ok(line[5].parse()?) };
        let requests = requests(long)?
            .checked_sub(requests(short)?)
            .filter(|n| *n > 0)
            .context("the longer window has no more requests")?;
        let name = Name {
            cpus: cpus.parse()?,
            size: size.to_owned(),
            direction: direction.to_owned(),
            invalidate: invalidate.to_owned(),
            stack: stack.to_owned(),
        };
        pairs.push(Pair {
            name,
            short: 2 * n,
            long: 2 * n + 1,
            requests,
            suffix: suffix.to_owned(),
        });
    }
    Ok(pairs)
}

fn for_each(
    dir: &Path,
    guest: &Path,
    mut f: impl FnMut(Name, &[(&Insn, f64)], &Symbols),
) -> Result<()> {
    let pairs = pairs(dir)?;
    let counts = Counts::read(&guest.join("counts"))?;
    ensure!(
        2 * pairs.len() == counts.windows.len(),
        "{} windows, {} rows",
        counts.windows.len(),
        pairs.len()
    );
    for pair in pairs {
        let insns = counts.per_request(pair.short, pair.long, pair.requests)?;
        f(
            pair.name,
            &insns,
            &Symbols::read(&guest.join(format!("symbols-{}", pair.suffix)))?,
        );
    }
    Ok(())
}

fn row(name: Name, insns: &[(&Insn, f64)], symbols: &Symbols) -> Row {
    let mut row = Row::new(name);
    let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
    let mut others: BTreeMap<u64, Function> = BTreeMap::new();
    for &(insn, n) in insns {
        row.kernel += n;
        let Some(symbol) = symbols.find(insn.address) else {
            continue;
        };
        *row.modules.entry(symbol.module.clone()).or_default() += n;
        if insn.address == symbol.address {
            for (event, function) in EVENTS {
                if symbol.name == function {
                    *row.events.entry(event.to_owned()).or_default() += n;
                }
            }
        }
        let helper = symbol.module == VMLINUX && symbol.rust;
        let own = TRANSPORT.contains(&symbol.module.as_str());
        if helper || own {
            row.transport += n;
        }
        if helper {
            row.helpers += n;
        }
        if own {
            *row.kinds.entry(Kind::of(&insn.text)).or_default() += n;
        }
        let of = match helper || own {
            true => &mut functions,
            false => &mut others,
        };
        let function = of.entry(symbol.address).or_default();
        if function.name.is_empty() {
            function.module = symbol.module.clone();
            function.name = symbol.name.clone();
        }
        function.instructions += n;
        if insn.address == symbol.address {
            function.entries += n;
        }
    }
    row.functions = sorted(functions);
    row.others = sorted(others);
    row
}

fn sorted(functions: BTreeMap<u64, Function>) -> Vec<Function> {
    // Less than one in a hundred requests: set-up that did not cancel out.
    let mut functions: Vec<_> = functions
        .into_values()
        .filter(|f| f.instructions >= 0.01)
        .collect();
    functions.sort_by(|a, b| b.instructions.total_cmp(&a.instructions));
    functions
}
