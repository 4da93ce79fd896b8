// SPDX-License-Identifier: GPL-2.0

//! A run of requests, and its statistics.

use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};
use rtrs_bindings::{
    errno::{
        from_i32,
        EPROTO, //
    },
    time,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use rtrs_client::api::{
    Events,
    LinkEvent,
    Session, //
};

use crate::{
    plan::{
        Expect,
        Plan, //
    },
    slot::{
        Slot,
        State, //
    },
    store::Count,
};

/// Number of different results that are reported one by one.
const RESULTS: usize = 6;

/// Counts over all runs.
#[derive(Default)]
pub(crate) struct Totals {
    /// Requests that were accepted.
    pub(crate) submitted: Count,
    /// Completions.
    pub(crate) told: Count,
    /// Completions of requests that were already complete.
    pub(crate) doubled: Count,
    /// Requests in flight.
    pub(crate) in_flight: Count,
    /// Sessions that were lost.
    pub(crate) disconnected: Count,
    /// Sessions that were reconnected.
    pub(crate) reconnected: Count,
}

impl Events for Totals {
    fn link_event(&self, event: LinkEvent) {
        match event {
            LinkEvent::Disconnected => self.disconnected.up(),
            LinkEvent::Reconnected => self.reconnected.up(),
        }
    }
}

/// Milliseconds to wait for requests in flight when a run is given up.
const ABANDON_MS: u32 = 10_000;

/// How often a result occurred.
struct Tally {
    result: Atomic<i32>,
    count: Count,
}

/// A run in progress.
#[pin_data]
pub(crate) struct Run {
    plan: Plan,
    totals: Arc<Totals>,
    /// Requests that were started.
    begun: Atomic<u64>,
    stopped: Atomic<bool>,
    submitted: Count,
    told: Count,
    doubled: Count,
    refused: Count,
    retried: Count,
    corrupt: Count,
    /// Requests submitted in the completion of another one.
    chained: Count,
    /// How often slots became done.
    done: Atomic<u64>,
    /// Counts of failures, refusals included.
    tallies: [Tally; RESULTS],
    /// The first unexpected result, 0 if there was none.
    wrong: Atomic<i32>,
    unexpected: Count,
    #[pin]
    wait: WaitQueue,
}

impl Run {
    fn new(plan: Plan, totals: Arc<Totals>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                plan,
                totals,
                begun: Atomic::new(0),
                stopped: Atomic::new(false),
                submitted: Count::default(),
                told: Count::default(),
                doubled: Count::default(),
                refused: Count::default(),
                retried: Count::default(),
                corrupt: Count::default(),
                chained: Count::default(),
                done: Atomic::new(0),
                tallies: core::array::from_fn(|_| Tally {
                    result: Atomic::new(0),
                    count: Count::default(),
                }),
                wrong: Atomic::new(0),
                unexpected: Count::default(),
                wait <- new_wait_queue!("rtrs_test_run"),
            }),
            GFP_KERNEL,
        )
    }

    /// The parameters of the run.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes the number of a request that still has to be made. Any context.
    pub(crate) fn claim(&self) -> Option<u64> {
        if self.stopped.load(Relaxed) {
            return None;
        }
        let mut number = self.begun.load(Relaxed);
        while number < self.plan.count {
            match self.begun.cmpxchg(number, number + 1, Relaxed) {
                Ok(_) => return Some(number),
                Err(other) => number = other,
            }
        }
        None
    }

    /// Counts an accepted request. Any context.
    pub(crate) fn note_submitted(&self, chained: bool) {
        self.submitted.up();
        self.totals.submitted.up();
        self.totals.in_flight.up();
        if chained {
            self.chained.up();
        }
    }

    /// Counts a request that must be tried again. Any context.
    pub(crate) fn note_retried(&self) {
        self.retried.up();
    }

    /// Counts a completion, the first one of its request or a later one. Any context.
    pub(crate) fn note_told(&self, first: bool) {
        self.told.up();
        self.totals.told.up();
        if first {
            self.totals.in_flight.down();
        } else {
            self.doubled.up();
            self.totals.doubled.up();
        }
    }

    /// Counts data that did not arrive as it was sent. Any context.
    pub(crate) fn note_corrupt(&self) {
        self.corrupt.up();
    }

    /// Checks the result of a request. Any context.
    pub(crate) fn judge(&self, result: i32) {
        if result != 0 {
            let tally =
                self.tallies
                    .iter()
                    .find(|tally| match tally.result.cmpxchg(0, result, Relaxed) {
                        Ok(_) => true,
                        Err(other) => other == result,
                    });
            if let Some(tally) = tally {
                tally.count.up();
            }
        }
        if matches!(self.plan.expect, Expect::Result(expected) if expected != result) {
            self.unexpected.up();
            // Unexpected success is an error, too.
            let wrong = if result == 0 {
                EPROTO.to_errno()
            } else {
                result
            };
            let _ = self.wrong.cmpxchg(0, wrong, Relaxed);
        }
    }

    /// How often slots became done. Any context.
    fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Counts a slot that became done. Any context.
    pub(crate) fn note_done(&self) {
        self.done.fetch_add(1, Full);
        self.wait.wake_all();
    }

    /// Checks that all counts are right.
    fn verdict(&self, finished: Result) -> Result {
        finished?;
        if self.told.get() != self.submitted.get() || self.doubled.get() != 0 {
            return Err(EPROTO);
        }
        if self.corrupt.get() != 0 {
            return Err(Error::from_errno(crate::order::CORRUPT));
        }
        from_i32(self.wrong.load(Relaxed)).map_or(Ok(()), Err)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "requests={} completed={} doubled={} refused={} retried={} chained={} corrupt={} unexpected={}",
            self.submitted.get(),
            self.told.get(),
            self.doubled.get(),
            self.refused.get(),
            self.retried.get(),
            self.chained.get(),
            self.corrupt.get(),
            self.unexpected.get(),
        )?;
        for tally in &self.tallies {
            if tally.count.get() != 0 {
                write!(f, " {}:{}", tally.result.load(Relaxed), tally.count.get())?;
            }
        }
        Ok(())
    }
}

/// Runs `plan` on `session`; returns the statistics with the verdict. Sleeps.
///
/// `forget` makes the caller drop its references to the session.
pub(crate) fn execute(
    plan: Plan,
    session: Arc<Session>,
    totals: Arc<Totals>,
    forget: impl FnOnce(),
) -> Result<(CString, Result)> {
    let run = Run::new(plan, totals)?;
    let segments = plan.segments()?;
    let mut slots = KVec::with_capacity(plan.depth, GFP_KERNEL)?;
    for _ in 0..plan.depth {
        slots.push(Slot::new(&run, &segments)?, GFP_KERNEL)?;
    }
    let before = time::now_ns();
    let mut session = Some(session);
    let finished = drive(&run, &slots, &mut session, forget);
    if finished.is_err() {
        abandon(&run, &slots, session);
    }
    let ms = time::now_ns().saturating_sub(before) / 1_000_000;
    let text = CString::try_from_fmt(fmt!("{} ms={}", *run, ms))?;
    Ok((text, run.verdict(finished)))
}

/// The result of a pass over all slots.
#[derive(Default)]
struct Look {
    /// Slots that are in flight.
    busy: usize,
    /// Slots that cannot go on for now.
    stuck: usize,
}

/// Keeps the slots busy until all requests are done.
fn drive(
    run: &Arc<Run>,
    slots: &[Arc<Slot>],
    session: &mut Option<Arc<Session>>,
    forget: impl FnOnce(),
) -> Result {
    let timeout = time::msecs_to_jiffies(run.plan.timeout_ms);
    let mut forget = Some(forget);
    loop {
        let seen = run.done();
        let look = look_after(run, slots, session.as_ref())?;
        if run.plan.drop {
            if let (Some(session), Some(forget)) = (session.take(), forget.take()) {
                run.stopped.store(true, Relaxed);
                forget();
                // The last reference: dropping it closes the session, and waits for the permits.
                drop(session);
            }
        }
        match look {
            Look { busy: 0, stuck: 0 } => return Ok(()),
            Look { busy: 0, .. } => {
                let tick = time::msecs_to_jiffies(1);
                match run.wait.wait_until_killable_timeout(tick, || false) {
                    Err(e) if e == ETIMEDOUT => (),
                    other => return other,
                }
            }
            _ => run
                .wait
                .wait_until_killable_timeout(timeout, || run.done() != seen)
                .map_err(|e| if e == ETIMEDOUT { lost() } else { e })?,
        }
    }
}

/// Ends a run early. Requests in flight end no later than the session, which this run does not keep.
/// Those of a chain may use it: they must not hold the last reference, as dropping it sleeps.
fn abandon(run: &Run, slots: &[Arc<Slot>], session: Option<Arc<Session>>) {
    run.stopped.store(true, Relaxed);
    let quiet = run
        .wait
        .wait_until_timeout(time::msecs_to_jiffies(ABANDON_MS), || {
            slots.iter().all(|slot| slot.state() != State::Busy)
        });
    if quiet.is_err() {
        pr_err!("requests get no answer\n");
        if run.plan.chain {
            pr_err!("a session is lost with them\n");
            core::mem::forget(session);
        }
    }
}

/// The error for requests that were not completed: `ETIME`.
fn lost() -> Error {
    Error::from_errno(-62)
}

/// Makes one pass over all slots.
fn look_after(run: &Arc<Run>, slots: &[Arc<Slot>], session: Option<&Arc<Session>>) -> Result<Look> {
    let mut look = Look::default();
    for slot in slots {
        if slot.state() == State::Done {
            slot.settle()?;
        }
        let Some(session) = session.filter(|_| slot.state() == State::Idle) else {
            look.busy += usize::from(slot.state() == State::Busy);
            continue;
        };
        // A refusal is a result, too: try as long as there are requests to make.
        while let Some(number) = slot.take_number().or_else(|| run.claim()) {
            match slot.start(session, number) {
                Ok(()) => {
                    look.busy += 1;
                    break;
                }
                Err(e) if e == ENOMEM || e == EAGAIN => {
                    run.note_retried();
                    slot.put_number(number)?;
                    look.stuck += 1;
                    break;
                }
                Err(e) => {
                    run.refused.up();
                    run.judge(e.to_errno());
                }
            }
        }
    }
    Ok(look)
}
