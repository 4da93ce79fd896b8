// SPDX-License-Identifier: GPL-2.0

//! Finds messages that must never be in a kernel log.

/// A report of the kernel about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The kind of report, for output.
    pub kind: &'static str,
    /// Its time, in seconds since power-on, if the log has it.
    pub at: Option<f64>,
    /// The lines around it.
    pub excerpt: Vec<String>,
}

/// Where in a message a pattern must be.
enum At {
    Start,
    Anywhere,
}

/// Reports, most specific first: the first match of a line names the problem.
const PATTERNS: &[(&str, At, &str)] = &[
    ("Kernel panic - not syncing", At::Anywhere, "panic"),
    ("BUG: KASAN", At::Anywhere, "KASAN"),
    ("BUG: KFENCE", At::Anywhere, "KFENCE"),
    (
        "BUG: sleeping function called",
        At::Anywhere,
        "sleeping in atomic context",
    ),
    (
        "BUG: scheduling while atomic",
        At::Anywhere,
        "scheduling while atomic",
    ),
    ("BUG: workqueue", At::Anywhere, "workqueue"),
    ("BUG: soft lockup", At::Anywhere, "soft lockup"),
    ("watchdog: BUG", At::Anywhere, "lockup"),
    ("hard LOCKUP", At::Anywhere, "hard lockup"),
    // A checker that gives up finds nothing any more.
    (
        "turning off the locking correctness validator",
        At::Anywhere,
        "lockdep switched off",
    ),
    (
        "trying to register non-static key",
        At::Anywhere,
        "lockdep switched off",
    ),
    (
        "Kernel memory leak detector disabled",
        At::Anywhere,
        "kmemleak switched off",
    ),
    (
        "Cannot allocate a kmemleak_object",
        At::Anywhere,
        "kmemleak switched off",
    ),
    (
        "lockdep is turned off",
        At::Anywhere,
        "lockdep switched off",
    ),
    (
        "debugging out of memory",
        At::Anywhere,
        "DMA-API switched off",
    ),
    ("dma-debug disabled", At::Anywhere, "DMA-API switched off"),
    (
        "DMA-API: debugging disabled",
        At::Start,
        "DMA-API switched off",
    ),
    (
        "allocation failed, disabling",
        At::Anywhere,
        "stack depot switched off",
    ),
    ("ODEBUG: Out of memory", At::Anywhere, "ODEBUG switched off"),
    (
        "cannot create duplicate filename",
        At::Anywhere,
        "duplicate name in sysfs",
    ),
    ("BUG: ", At::Anywhere, "BUG"),
    // SLUB: "BUG kmalloc-64 (Not tainted): Right Redzone overwritten".
    ("BUG ", At::Start, "slab corruption"),
    ("kernel BUG at", At::Anywhere, "BUG"),
    ("rust_kernel: panicked", At::Anywhere, "Rust panic"),
    ("Oops: ", At::Anywhere, "Oops"),
    ("general protection fault", At::Anywhere, "Oops"),
    ("invalid opcode: ", At::Anywhere, "Oops"),
    ("double fault: ", At::Anywhere, "Oops"),
    ("stack-protector:", At::Anywhere, "stack corruption"),
    ("UBSAN: ", At::Anywhere, "UBSAN"),
    ("refcount_t: ", At::Anywhere, "reference count"),
    ("possible circular locking", At::Anywhere, "lockdep"),
    ("possible recursive locking", At::Anywhere, "lockdep"),
    ("possible irq lock inversion", At::Anywhere, "lockdep"),
    ("inconsistent lock state", At::Anywhere, "lockdep"),
    ("bad unlock balance", At::Anywhere, "lockdep"),
    ("held lock freed", At::Anywhere, "lockdep"),
    ("still has locks held", At::Anywhere, "lockdep"),
    ("lock held when returning", At::Anywhere, "lockdep"),
    ("Invalid wait context", At::Anywhere, "lockdep"),
    ("suspicious RCU usage", At::Anywhere, "lockdep"),
    ("blocked for more than", At::Anywhere, "hung task"),
    ("detected stall", At::Anywhere, "RCU stall"),
    ("self-detected stall", At::Anywhere, "RCU stall"),
    ("detected expedited stalls", At::Anywhere, "RCU stall"),
    ("new suspected memory leak", At::Anywhere, "kmemleak"),
    ("unreferenced object 0x", At::Anywhere, "kmemleak"),
    ("DMA-API: ", At::Start, "DMA-API"),
    ("ODEBUG: ", At::Start, "object debugging"),
    ("list_add corruption", At::Anywhere, "list corruption"),
    ("list_del corruption", At::Anywhere, "list corruption"),
    ("Poison overwritten", At::Anywhere, "slab corruption"),
    ("Object already free", At::Anywhere, "slab corruption"),
    ("Objects remaining", At::Anywhere, "slab leak"),
    ("Bad page state", At::Anywhere, "page state"),
    ("unable to handle page fault", At::Anywhere, "Oops"),
    ("unable to handle kernel", At::Anywhere, "Oops"),
    ("WARNING: ", At::Start, "WARNING"),
    ("------------[ cut here ]", At::Start, "WARNING"),
];

/// Lines that the instrumented kernel prints at boot and that look like reports.
const BENIGN: &[&str] = &[
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "DMA-API: dma_debug",
    "ODEBUG: selftest passed",
    "active objects replaced",
    // Messages about the tool chain, not about the kernel's state.
    "loading out-of-tree module taints kernel",
];

/// Warnings that are about soft RoCE itself. It queues a packet for a queue pair, and schedules the
/// task of that queue pair afterwards. If another processor has handled the packet by then, and the
/// queue pair has just been destroyed, the packet's reference was the last one
/// (`rxe_resp_queue_pkt()`, 7.2). Closing a connection while its peer sends can cause that.
const SOFT_ROCE: (&str, &str) = (
    "WARNING: drivers/infiniband/sw/rxe/rxe_task.c:",
    " at rxe_sched_task+",
);

const BEFORE: usize = 3;
const AFTER: usize = 45;

/// Kinds that are a report of their own even right after another one.
const CHECKERS: &[&str] = &[
    "KASAN",
    "KFENCE",
    "UBSAN",
    "lockdep",
    "kmemleak",
    "DMA-API",
    "object debugging",
    "sleeping in atomic context",
];

/// Scans a log; one problem per report, not one per line of it.
pub fn scan(log: &str) -> Vec<Problem> {
    let lines: Vec<&str> = log.lines().map(|l| l.trim_end_matches('\r')).collect();
    let mut problems = Vec::new();
    let mut i = 0;

    while i < lines.len() {
        let Some(kind) = classify(message(lines[i])) else {
            i += 1;
            continue;
        };
        let end = (i + AFTER).min(lines.len());
        let end = lines[i + 1..end]
            .iter()
            .position(|l| l.contains("---[ end trace") || l.contains("---[ end Kernel panic"))
            .map_or(end, |n| i + n + 2);
        // Output of another checker is not part of the report.
        let end = lines[i + 1..end]
            .iter()
            .position(|l| classify(message(l)).is_some_and(|k| k != kind && CHECKERS.contains(&k)))
            .map_or(end, |n| i + n + 1);
        // The line after "cut here" is a better name for the problem.
        let kind = if message(lines[i]).starts_with("------------[ cut here") {
            lines[i + 1..end]
                .iter()
                .take(2)
                .find_map(|l| classify(message(l)))
                .unwrap_or(kind)
        } else {
            kind
        };
        let begin = i.saturating_sub(BEFORE);
        let own = lines[i..end].iter().take(3).map(|l| message(l));
        if !own.into_iter().any(is_soft_roce) {
            problems.push(Problem {
                kind,
                at: stamp(lines[i]),
                excerpt: lines[begin..end].iter().map(|l| l.to_string()).collect(),
            });
        }
        i = end;
    }
    problems
}

/// Whether the kernel died.
pub fn died(problems: &[Problem]) -> bool {
    problems.iter().any(|p| {
        p.excerpt
            .iter()
            .any(|l| l.contains("Kernel panic - not syncing"))
    })
}

fn classify(msg: &str) -> Option<&'static str> {
    if BENIGN.iter().any(|b| msg.contains(b)) {
        return None;
    }
    PATTERNS
        .iter()
        .find(|(pat, at, _)| match at {
            At::Start => msg.starts_with(pat),
            At::Anywhere => msg.contains(pat),
        })
        .map(|(_, _, kind)| *kind)
}

fn is_soft_roce(msg: &str) -> bool {
    msg.starts_with(SOFT_ROCE.0) && msg.contains(SOFT_ROCE.1)
}

/// The time stamp of a console line.
fn stamp(line: &str) -> Option<f64> {
    line.strip_prefix('[')?
        .split_once(']')?
        .0
        .trim()
        .parse()
        .ok()
}

/// A console line without its time stamp and caller: "[    1.2][  T12] text".
fn message(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.strip_prefix('[') {
        match inner.split_once(']') {
            Some((stamp, tail))
                if stamp
                    .trim()
                    .chars()
                    .all(|c| c.is_ascii_digit() || c == '.' || c == 'T' || c == 'C') =>
            {
                rest = tail.trim_start();
            }
            _ => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_boot() {
        let log = "[    0.1] Linux version\n[    0.2] DMA-API: preallocated 65536 debug entries\n\
                   [    0.3] Spectre V2 : WARNING: Unprivileged eBPF is enabled\n";
        assert_eq!(scan(log), []);
    }

    #[test]
    fn warning_is_one_problem() {
        let log = "[ 1.0] before\n[ 1.1] ------------[ cut here ]------------\n\
                   [ 1.1] WARNING: drivers/x.c:3 at f+0x1/0x2, CPU#0: insmod/3\n\
                   [ 1.2] Call Trace:\n[ 1.3] ---[ end trace 0000000000000000 ]---\n[ 1.4] after\n";
        let p = scan(log);
        assert_eq!(p.len(), 1);
        assert_eq!(p[0].kind, "WARNING");
        assert_eq!(p[0].at, Some(1.1));
        assert!(p[0].excerpt.last().unwrap().contains("end trace"));
        assert!(p[0].excerpt[0].contains("before"));
    }

    #[test]
    fn soft_roce_speaks_of_itself() {
        let about = |place: &str| {
            format!(
                "[ 1.1] ------------[ cut here ]------------\n\
                 [ 1.1] WARNING: drivers/infiniband/sw/rxe/{place}, CPU#1: kworker/1\n\
                 [ 1.2] Call Trace:\n[ 1.3] ---[ end trace 0000000000000000 ]---\n"
            )
        };
        let own = about("rxe_task.c:249 at rxe_sched_task+0x9c/0xb0 [rdma_rxe]");
        let other = about("rxe_pool.c:12 at rxe_elem_release+0x1/0x2 [rdma_rxe]");
        assert_eq!(scan(&own), []);
        assert_eq!(scan(&other).len(), 1);
        // What follows is scanned.
        assert_eq!(scan(&(own + &other)).len(), 1);
    }

    #[test]
    fn reports_of_two_checkers_are_two_problems() {
        let log = "[ 1.1] kmemleak: 1 new suspected memory leaks (see ...)\n[ 1.2] read 0\n\
                   [ 1.3] BUG: KASAN: slab-use-after-free in plant\n[ 1.4] Read of size 1\n";
        let kinds: Vec<_> = scan(log).iter().map(|p| p.kind).collect();
        assert_eq!(kinds, ["kmemleak", "KASAN"]);
    }

    #[test]
    fn refcount_is_named() {
        let log = "[ 1.1] ------------[ cut here ]------------\n\
                   [ 1.1] refcount_t: underflow; use-after-free.\n";
        assert_eq!(scan(log)[0].kind, "reference count");
    }

    #[test]
    fn a_stall_is_a_problem() {
        let p = scan("[   92.8] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n");
        assert_eq!((p[0].kind, p[0].at), ("RCU stall", Some(92.8)));
    }

    #[test]
    fn a_checker_that_gives_up_is_a_problem() {
        for (line, kind) in [
            ("BUG: MAX_LOCKDEP_CHAINS too low!", "BUG"),
            (
                "turning off the locking correctness validator.",
                "lockdep switched off",
            ),
            (
                "kmemleak: Kernel memory leak detector disabled",
                "kmemleak switched off",
            ),
            (
                "DMA-API: debugging out of memory - disabling",
                "DMA-API switched off",
            ),
            (
                "DMA-API: cacheline tracking ENOMEM, dma-debug disabled",
                "DMA-API switched off",
            ),
            ("INFO: lockdep is turned off.", "lockdep switched off"),
            (
                "stackdepot: stack pools allocation failed, disabling",
                "stack depot switched off",
            ),
            (
                "BUG kmalloc-64 (Not tainted): Right Redzone overwritten",
                "slab corruption",
            ),
            (
                "ODEBUG: Out of memory. ODEBUG disabled",
                "ODEBUG switched off",
            ),
        ] {
            let p = scan(&format!("[    3.1][   T77] {line}\n"));
            assert_eq!((p.len(), p[0].kind), (1, kind), "{line}");
        }
    }

    #[test]
    fn caller_field_is_skipped() {
        assert_eq!(message("[    5.1][  T312] WARNING: x"), "WARNING: x");
        assert_eq!(message("[drm] fine"), "[drm] fine");
    }

    #[test]
    fn panic_is_death() {
        let p = scan("[ 2.0] Kernel panic - not syncing: Fatal exception\n");
        assert!(died(&p));
        assert_eq!(p[0].kind, "panic");
    }
}
