// SPDX-License-Identifier: GPL-2.0

//! Generated attacks on a server: many short sessions, several at a time.

mod drive;
mod fields;
mod generate;
pub mod script;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Mutex, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;

use drive::Worker;

/// The parameters of a run.
pub struct Job {
    /// Address of the server.
    pub addr: SocketAddr,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of the first session.
    pub first: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Time after which no new session begins.
    pub limit: Option<Duration>,
    /// Number of sessions at a time.
    pub workers: usize,
    /// Time that the server may take for anything.
    pub patience: Duration,
    /// Whether to print what each session does.
    pub verbose: bool,
}

/// Number of failures that are printed; mostly they have one cause.
const TOLD: usize = 5;

/// This many times the patience is more than any session takes.
const STUCK: u32 = 6;

#[derive(Default)]
struct Tally {
    done: u64,
    kinds: BTreeMap<&'static str, u64>,
    ends: BTreeMap<&'static str, u64>,
    failures: usize,
    /// The session in progress and its start, by worker.
    running: BTreeMap<usize, (u64, Instant)>,
}

/// Runs the sessions; prints failures as they happen, and a summary. Returns whether there was
/// none.
pub fn run(job: &Job) -> Result<bool> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let begin = Instant::now();

    thread::scope(|scope| {
        let (next, stop, tally) = (&next, &stop, &tally);
        let all: Vec<_> = (0..job.workers.max(1))
            .map(|n| scope.spawn(move || work(job, n, begin, next, stop, tally)))
            .collect();
        while !all.iter().all(|worker| worker.is_finished()) {
            thread::sleep(Duration::from_millis(50));
            watch(job, tally);
        }
    });

    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    let secs = begin.elapsed().as_secs_f64();
    let ok = tally.failures == 0 && tally.done != 0;
    let all = json!({
        "ok": ok,
        "role": "fuzz",
        "seed": job.seed,
        "first": job.first,
        "sessions": tally.done,
        "seconds": secs.round(),
        "per_second": (tally.done as f64 / secs * 10.0).round() / 10.0,
        "failures": tally.failures,
        "kinds": tally.kinds,
        "ends": tally.ends,
    });
    println!("{all}");
    Ok(ok)
}

/// Every session ends within some multiple of the server's time. One that does not is stuck in the
/// kernel, on either side, and its thread cannot be stopped.
fn watch(job: &Job, tally: &Mutex<Tally>) {
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let stuck = |(_, since): &&(u64, Instant)| since.elapsed() > STUCK * job.patience;
    let indices: Vec<u64> = tally
        .running
        .values()
        .filter(stuck)
        .map(|(index, _)| *index)
        .collect();
    if !indices.is_empty() {
        let told = json!({
            "ok": false,
            "role": "fuzz",
            "seed": job.seed,
            "index": indices,
            "sessions": tally.done,
            "wrong": "stuck",
        });
        println!("{told}");
        process::exit(1);
    }
}

/// The loop of one of the attackers that run at the same time.
fn work(
    job: &Job,
    own: usize,
    begin: Instant,
    next: &AtomicU64,
    stop: &AtomicBool,
    tally: &Mutex<Tally>,
) {
    let mut worker = Worker::new(job.addr, job.patience);

    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let late = job.limit.is_some_and(|limit| begin.elapsed() >= limit);
        if n >= job.sessions || late || stop.load(Ordering::Relaxed) {
            return;
        }
        let index = job.first + n;
        let script = generate::script(job.seed, index);
        if job.verbose {
            println!(
                "{}",
                json!({"index": index, "script": format!("{script:?}")})
            );
        }
        let t0 = Instant::now();
        let running = |tally: &mut Tally| tally.running.insert(own, (index, t0));
        running(&mut tally.lock().unwrap_or_else(PoisonError::into_inner));
        let end = worker.run(&script);
        if job.verbose {
            let ms = t0.elapsed().as_millis() as u64;
            println!(
                "{}",
                json!({"index": index, "ms": ms, "end": format!("{end:?}")})
            );
        }

        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.running.remove(&own);
        tally.done += 1;
        *tally.kinds.entry(script.kind).or_default() += 1;
        match end {
            Ok(end) => *tally.ends.entry(end.as_str()).or_default() += 1,
            Err(e) => {
                tally.failures += 1;
                let told = json!({
                    "ok": false,
                    "role": "fuzz",
                    "seed": job.seed,
                    "index": index,
                    "kind": script.kind,
                    "wrong": format!("{e:#}"),
                    "script": format!("{:?}", script.steps),
                });
                println!("{told}");
                if tally.failures >= TOLD {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        if tally.done % 100 == 0 {
            // A crash names no index: it is one of these.
            println!(
                "{}",
                json!({
                    "role": "fuzz",
                    "seed": job.seed,
                    "done": tally.done,
                    "index_up_to": job.first + next.load(Ordering::Relaxed),
                    "seconds": begin.elapsed().as_secs(),
                })
            );
        }
    }
}
