// SPDX-License-Identifier: GPL-2.0

//! The measured part of Documentation/performance.rst.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::mixed::{self, Mixed};
use crate::plot::Bars;
use crate::row::{Name, Row};
use crate::table;
use crate::time::{Pair, Time};

/// All measurements.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// The commit.
    pub commit: String,
    /// Instructions.
    pub rows: Vec<Row>,
    /// Times by the clock.
    pub times: Vec<Time>,
    /// Ours against the other stacks, by the clock.
    #[serde(default)]
    pub pairs: Vec<Pair>,
    /// Rows of two guests.
    pub mixed: Vec<Mixed>,
}

/// The stacks in the order of the bars; "nvme" always has "-" for always_invalidate.
const STACKS: [&str; 3] = ["rust", "c", "nvme"];
const STACK_NAMES: [&str; 3] = ["RTRS in Rust", "RTRS in C", "NVMe over RDMA"];

impl Report {
    /// All rows, those of two guests as sums.
    pub fn all(&self) -> Vec<Row> {
        let sums = self.mixed.iter().map(Mixed::sum);
        self.rows.iter().cloned().chain(sums).collect()
    }

    fn find(&self, stack: &str, size: &str, direction: &str, ai: &str, cpus: u32) -> Option<&Row> {
        let name = Name {
            cpus,
            size: size.to_owned(),
            direction: direction.to_owned(),
            invalidate: if stack == "nvme" { "-" } else { ai }.to_owned(),
            stack: stack.to_owned(),
        };
        self.rows.iter().find(|row| row.name == name)
    }

    fn bars<'a>(
        &self,
        title: &'a str,
        groups: &[(&str, &str, &str, u32)],
        value: impl Fn(&Row) -> f64,
    ) -> Bars<'a> {
        Bars {
            title,
            series: &STACK_NAMES,
            groups: groups
                .iter()
                .map(|&(size, direction, ai, cpus)| {
                    let name = format!("{size} {direction} {ai} {cpus}");
                    let values = STACKS
                        .iter()
                        .map(|stack| self.find(stack, size, direction, ai, cpus).map(&value))
                        .collect();
                    (name, values)
                })
                .collect(),
        }
    }

    /// Writes plots and tables to `dir`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let small = [
            ("4k", "read", "Y", 1),
            ("4k", "write", "Y", 1),
            ("4k", "read", "N", 1),
            ("4k", "write", "N", 1),
        ];
        let large = [
            ("64k", "read", "Y", 1),
            ("64k", "write", "Y", 1),
            ("64k", "read", "N", 1),
            ("64k", "write", "N", 1),
        ];
        let spread = [
            ("4k", "read", "Y", 1),
            ("4k", "read", "Y", 2),
            ("4k", "read", "Y", 4),
        ];
        let own = |row: &Row| row.transport;
        let all = |row: &Row| row.kernel;
        for (name, bars) in [
            (
                "transport-4k",
                self.bars("Instructions of the transport per 4k request", &small, own),
            ),
            (
                "transport-cpus",
                self.bars("The same with 1, 2 and 4 vCPUs", &spread, own),
            ),
            (
                "kernel-4k",
                self.bars(
                    "Instructions of the whole kernel per 4k request",
                    &small,
                    all,
                ),
            ),
            (
                "kernel-64k",
                self.bars(
                    "Instructions of the whole kernel per 64k request",
                    &large,
                    all,
                ),
            ),
        ] {
            let path = dir.join(name).with_extension("svg");
            fs::write(&path, bars.svg()?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let literal = |text: String| -> String {
            text.lines()
                .fold(String::new(), |out, line| out + "  " + line + "\n")
        };
        let text = format!(
            ".. SPDX-License-Identifier: GPL-2.0\n.. Made by \"make bench-page\".\n\n\
             Kernel {}, commit {}. Per request::\n\n{}\nEvents per request::\n\n{}\n\
             Two guests, one vCPU each: the client of one implementation, the server of another, per \
             request, both together::\n\n{}\nEvents per request, both together::\n\n{}\n\
             By the clock, median and spread of several turns of several guests. An emulated machine: \
             noisy, good for orders of magnitude only::\n\n{}\n\
             Ours against the others, in the same turn, with the 95 % interval of the mean; an interval \
             with 0 in it has a question mark. More is better for IOPS, less for latencies::\n\n{}",
            self.kernel,
            self.commit,
            literal(table::rows(&self.rows)),
            literal(table::events(&self.rows)),
            literal(mixed::table(&self.mixed)),
            literal(mixed::events(&self.mixed)),
            literal(table::times(&self.times)),
            literal(table::pairs(&self.pairs)),
        );
        fs::write(dir.join("tables.rst"), text).context("cannot write the tables")
    }
}
