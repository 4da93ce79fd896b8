// SPDX-License-Identifier: GPL-2.0

//! Tables on the terminal.

use crate::kind::Kind;
use crate::row::{Function, Row};
use crate::time::{Difference, Figure, Pair, Time};

/// One line per row.
pub fn rows(rows: &[Row]) -> String {
    let mut out = format!(
        "{:6} {:4} {:6} {:2} {:>4} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9}\n",
        "stack",
        "size",
        "",
        "AI",
        "CPUs",
        "transport",
        "client",
        "core",
        "server",
        "helpers",
        "kernel"
    );
    for row in rows {
        let module = |names: &[&str]| -> f64 {
            names
                .iter()
                .filter_map(|n| row.modules.get(*n))
                .sum::<f64>()
                + 0.0
        };
        out += &format!(
            "{:6} {:4} {:6} {:2} {:>4} {:>10.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>9.0}\n",
            row.name.stack,
            row.name.size,
            row.name.direction,
            row.name.invalidate,
            row.name.cpus,
            row.transport,
            module(&["rtrs_client", "nvme_rdma"]),
            module(&["rtrs_core"]),
            module(&["rtrs_server", "nvmet_rdma"]),
            row.helpers,
            row.kernel
        );
    }
    out
}

/// Events per request, one line per row.
pub fn events(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let each: Vec<String> = row
            .events
            .iter()
            .map(|(what, n)| format!("{what} {n:.2}"))
            .collect();
        out += &format!("{}: {}\n", row.name.text(), each.join(", "));
    }
    out
}

/// Times by the clock.
pub fn times(times: &[Time]) -> String {
    let mut out = format!(
        "{:16} {:6} {:>22} {:>22} {:>22} {:>22}\n",
        "", "stack", "IOPS", "p50 us", "p99 us", "p99.9 us"
    );
    let cell = |f: &Figure| format!("{:.0} ({:.0}..{:.0})", f.median, f.least, f.most);
    for time in times {
        out += &format!(
            "{:16} {:6} {:>22} {:>22} {:>22} {:>22}\n",
            time.row,
            time.stack,
            cell(&time.iops),
            cell(&time.latency[0]),
            cell(&time.latency[1]),
            cell(&time.latency[2])
        );
    }
    out
}

/// Our modules against the others, turn by turn.
pub fn pairs(pairs: &[Pair]) -> String {
    let mut out = format!(
        "{:16} {:7} {:>5} {:>16} {:>16} {:>16} {:>16}\n",
        "", "against", "turns", "IOPS %", "p50 %", "p99 %", "p99.9 %"
    );
    let cell = |d: &Difference| {
        let open = if d.is_open() { '?' } else { ' ' };
        format!("{:+.1} +-{:.1}{open}", d.mean, d.half)
    };
    for pair in pairs {
        let [iops, p50, p99, p999] = pair.more.each_ref().map(cell);
        let line = format!(
            "{:16} {:7} {:>5} {iops:>16} {p50:>16} {p99:>16} {p999:>16}",
            pair.row, pair.against, pair.turns
        );
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Instructions by kind, one column per row.
pub fn kinds(rows: &[Row]) -> String {
    let mut out = format!("{:10}", "");
    for row in rows {
        out += &format!(" {:>24}", row.name.text());
    }
    out.push('\n');
    for kind in Kind::ALL {
        out += &format!("{:10}", kind.word());
        for row in rows {
            out += &format!(" {:>24.0}", row.kinds.get(&kind).copied().unwrap_or(0.0));
        }
        out.push('\n');
    }
    out
}

/// Two rows, function by function, side by side; or one alone.
pub fn profile(left: &Row, right: Option<&Row>, least: f64) -> String {
    const WIDTH: usize = 66;
    let cell = |f: Option<&Function>| match f {
        Some(f) => {
            let name: String = format!("{}: {}", f.module.trim_start_matches("rtrs_"), f.name);
            let name: String = match name.char_indices().nth(WIDTH - 16) {
                // The end of a name is the most specific part.
                Some(_) => {
                    let skip = name.chars().count() - (WIDTH - 19);
                    format!("...{}", name.chars().skip(skip).collect::<String>())
                }
                None => name,
            };
            format!("{:8.1} {:5.2} {name:50}", f.instructions, f.entries)
        }
        None => " ".repeat(WIDTH - 1),
    };
    let some = |row: &Row| -> Vec<Function> {
        let shown = row.functions.iter().filter(|f| f.instructions >= least);
        shown.cloned().collect()
    };
    let (l, r) = (some(left), right.map(some).unwrap_or_default());
    let other = right.map(|row| row.name.text()).unwrap_or_default();
    let mut out = format!("{:65} | {other}\n", left.name.text());
    for n in 0..l.len().max(r.len()) {
        out += format!("{} | {}", cell(l.get(n)), cell(r.get(n))).trim_end();
        out.push('\n');
    }
    out
}
