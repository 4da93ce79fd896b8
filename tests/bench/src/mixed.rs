// SPDX-License-Identifier: GPL-2.0

//! Rows of two guests, a client of one implementation and a server of the same or the other one.

use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::row::{self, Row, EVENTS};
use crate::table;

/// Percent by which a row with one end of ours may be worse than one with none.
const TOLERANCE: f64 = 2.0;

/// The stack with no end of ours.
const ANCHOR: &str = "c/c";

/// One row, as each guest counted it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mixed {
    /// The client's part.
    pub client: Row,
    /// The server's.
    pub server: Row,
}

/// Reads the rows of a pair of guests.
pub fn read(dir: &Path) -> Result<Vec<Mixed>> {
    let part = |guest: &str| {
        row::read_guest(dir, &dir.join(guest)).with_context(|| format!("of the {guest}"))
    };
    let (clients, servers) = (part("client")?, part("server")?);
    ensure!(clients.len() == servers.len(), "not the same rows");
    let pairs = clients.into_iter().zip(servers);
    Ok(pairs
        .map(|(client, server)| Mixed { client, server })
        .collect())
}

/// A figure of a row, and the same of mainline's alone.
struct Figure {
    what: &'static str,
    found: f64,
    anchor: f64,
}

impl Figure {
    fn percent(&self) -> f64 {
        (self.found / self.anchor - 1.0) * 100.0
    }

    fn worse(&self) -> bool {
        self.percent() > TOLERANCE
    }
}

impl Mixed {
    /// Both ends together.
    pub fn sum(&self) -> Row {
        let mut sum = self.client.clone();
        sum.add(&self.server);
        sum
    }

    fn stack(&self) -> &str {
        &self.client.name.stack
    }

    /// Whether the requirement is about it: one end is ours.
    fn half_ours(&self) -> bool {
        self.stack() != ANCHOR && self.stack().split('/').any(|end| end == "c")
    }

    /// The row with no end of ours.
    fn anchor<'a>(&self, rows: &'a [Self]) -> Option<&'a Self> {
        let mut name = self.client.name.clone();
        name.stack = ANCHOR.to_owned();
        rows.iter().find(|row| row.client.name == name)
    }

    fn figures(&self, anchor: &Self) -> Vec<Figure> {
        let (found, anchor) = (self.sum(), anchor.sum());
        let mut figures = vec![Figure {
            what: "instructions",
            found: found.transport,
            anchor: anchor.transport,
        }];
        figures.extend(EVENTS.iter().map(|&(what, _)| Figure {
            what,
            found: found.event(what),
            anchor: anchor.event(what),
        }));
        figures
    }
}

/// One line per row: instructions of both ends together and of each, and of the whole kernels.
pub fn table(rows: &[Mixed]) -> String {
    let mut out = format!(
        "{:9} {:4} {:6} {:2} {:>10} {:>8} {:>8} {:>12} {:>9} {:>12}\n",
        "client/",
        "size",
        "",
        "AI",
        "transport",
        "client",
        "server",
        "against c/c",
        "kernels",
        "against c/c"
    );
    for row in rows {
        let sum = row.sum();
        let anchor = row.anchor(rows).map(Mixed::sum);
        let against = |figure: fn(&Row) -> f64| match &anchor {
            Some(anchor) => format!("{:+.1} %", (figure(&sum) / figure(anchor) - 1.0) * 100.0),
            None => String::new(),
        };
        let line = format!(
            "{:9} {:4} {:6} {:2} {:>10.0} {:>8.0} {:>8.0} {:>12} {:>9.0} {:>12}",
            row.stack(),
            sum.name.size,
            sum.name.direction,
            sum.name.invalidate,
            sum.transport,
            row.client.transport,
            row.server.transport,
            against(|row| row.transport),
            sum.kernel,
            against(|row| row.kernel),
        );
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// What both guests did per request, one line per row.
pub fn events(rows: &[Mixed]) -> String {
    table::events(&rows.iter().map(Mixed::sum).collect::<Vec<_>>())
}

/// A line per figure of a row with one end of ours that is worse than mainline's alone, and whether
/// there is none.
pub fn judge(rows: &[Mixed]) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let (mut judged, mut good) = (0, true);
    for row in rows.iter().filter(|row| row.half_ours()) {
        let name = row.client.name.text();
        let Some(anchor) = row.anchor(rows) else {
            good = false;
            lines.push(format!("{name}: nothing to compare with"));
            continue;
        };
        judged += 1;
        for figure in row.figures(anchor) {
            let (what, found, mainline) = (figure.what, figure.found, figure.anchor);
            if mainline <= 0.0 {
                good = false;
                lines.push(format!("{name}: {what}: not measured"));
            } else if figure.worse() {
                good = false;
                let percent = figure.percent();
                lines.push(format!(
                    "{name}: {what} {found:.2}, {ANCHOR} {mainline:.2} ({percent:+.1} %): WORSE"
                ));
            }
        }
    }
    good &= judged > 0;
    lines.push(format!(
        "{judged} rows with one end of ours: {}",
        match good {
            true => format!("no figure is worse than {ANCHOR} by more than {TOLERANCE} %"),
            false => "not all are as good as mainline's alone".to_owned(),
        }
    ));
    (lines, good)
}

/// By function, each end beside mainline's: the rows with more instructions than they may have, or
/// all.
pub fn profile(rows: &[Mixed], all: bool, least: f64) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| row.half_ours()) {
        let Some(anchor) = row.anchor(rows) else {
            continue;
        };
        let worse = row.figures(anchor).first().is_some_and(Figure::worse);
        if worse || all {
            for (end, ours, theirs) in [
                ("client", &row.client, &anchor.client),
                ("server", &row.server, &anchor.server),
            ] {
                out += &format!("{end}:\n{}\n", table::profile(ours, Some(theirs), least));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Name;

    fn part(stack: &str, transport: f64, events: f64) -> Row {
        Row {
            transport,
            kernel: 10.0 * transport,
            events: EVENTS
                .iter()
                .map(|&(what, _)| (what.to_owned(), events))
                .collect(),
            ..Row::new(Name {
                cpus: 1,
                size: "4k".into(),
                direction: "read".into(),
                invalidate: "Y".into(),
                stack: stack.into(),
            })
        }
    }

    fn mixed(stack: &str, client: f64, server: f64, events: f64) -> Mixed {
        Mixed {
            client: part(stack, client, events),
            server: part(stack, server, events),
        }
    }

    #[test]
    fn both_ends_count() {
        let rows = [
            mixed("c/c", 600.0, 400.0, 2.0),
            // The client is worse, the server makes up for it.
            mixed("rust/c", 700.0, 310.0, 2.0),
        ];
        assert!(judge(&rows).1);
        assert_eq!(rows[1].sum().transport, 1010.0);
        assert_eq!(rows[1].sum().event("packets"), 4.0);
        let table = table(&rows);
        assert!(table.contains("+1.0 %"), "{table}");
    }

    #[test]
    fn two_percent() {
        let anchor = mixed("c/c", 600.0, 400.0, 2.0);
        for (row, good) in [
            (mixed("rust/c", 600.0, 419.0, 2.0), true),
            (mixed("rust/c", 600.0, 421.0, 2.0), false),
            (mixed("c/rust", 600.0, 421.0, 2.0), false),
            (mixed("c/rust", 500.0, 400.0, 2.05), false),
            // Without an end of mainline's it does not matter.
            (mixed("rust/rust", 900.0, 900.0, 9.0), true),
        ] {
            let rows = [anchor.clone(), mixed("c/rust", 1.0, 1.0, 2.0), row];
            let (lines, judged) = judge(&rows);
            assert_eq!(judged, good, "{lines:?}");
        }
    }

    #[test]
    fn nothing_to_compare_with_is_no_success() {
        assert!(!judge(&[]).1);
        assert!(!judge(&[mixed("c/c", 1.0, 1.0, 1.0)]).1);
        assert!(!judge(&[mixed("rust/c", 1.0, 1.0, 1.0)]).1);
        // Events of a function whose name has changed are not counted.
        let rows = [mixed("c/c", 1.0, 1.0, 0.0), mixed("rust/c", 1.0, 1.0, 0.0)];
        assert!(!judge(&rows).1);
    }

    #[test]
    fn the_profile_has_what_is_worse() {
        let rows = [
            mixed("c/c", 600.0, 400.0, 2.0),
            mixed("c/rust", 600.0, 400.0, 2.0),
            mixed("rust/c", 700.0, 400.0, 2.0),
        ];
        let text = profile(&rows, false, 1.0);
        assert!(text.contains("rust/c") && !text.contains("c/rust"));
        assert!(profile(&rows, true, 1.0).contains("c/rust"));
    }
}
