// SPDX-License-Identifier: GPL-2.0

//! A slot sends one request after the other, and checks each.
//!
//! # Owner of a slot
//!
//! While the [`State`] is `Idle` or `Done`, `inner` belongs to the run. While it is `Busy`, it
//! belongs to the submitter until `submit()` has returned, and then to the second of submitter and
//! completion.
//!
//! The second one gives the permit back and makes the slot `Done`, or, in a chain, submits the next
//! request in its own context: mostly a softirq.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use rtrs_bindings::try_lock::TryLock;
use rtrs_client::api::{
    DataDir,
    Message,
    Permit,
    Piece,
    Request,
    Session,
    SgBuffer, //
};

use crate::{
    pattern::Pattern,
    plan::MAX_PIECES,
    run::Run, //
};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// The slot can be started.
    Idle,
    /// Its request is in flight.
    Busy,
    /// Its request is complete, the result not yet checked.
    Done,
}

/// Room for one request.
pub(crate) struct Slot {
    run: Arc<Run>,
    data: Option<SgBuffer>,
    inner: TryLock<Inner>,
    state: Atomic<u32>,
    result: Atomic<i32>,
    /// Completions of the request in flight: at most 1.
    told: Atomic<u32>,
    /// How many of submitter and completion are done with the request.
    through: Atomic<u32>,
}

/// State with one owner at a time.
struct Inner {
    /// The request that is in flight, or must be tried again.
    number: Option<u64>,
    /// Its data, to check against.
    staging: KVVec<u8>,
    message: KVVec<u8>,
    permit: Option<Permit>,
    /// For the next request of a chain. It is not the last reference, so that a softirq can drop
    /// it: the run has one until all slots are done.
    session: Option<Arc<Session>>,
}

impl Slot {
    /// Makes a slot for requests of `run`, with data in `segments`. Sleeps.
    pub(crate) fn new(run: &Arc<Run>, segments: &[(usize, usize)]) -> Result<Arc<Self>> {
        let data = if segments.is_empty() {
            None
        } else {
            Some(SgBuffer::new(segments.iter().copied())?)
        };
        Ok(Arc::new(
            Self {
                run: run.clone(),
                data,
                inner: TryLock::new(Inner {
                    number: None,
                    staging: KVVec::from_elem(0, run.plan().len, GFP_KERNEL)?,
                    message: KVVec::from_elem(0, run.plan().msg, GFP_KERNEL)?,
                    permit: None,
                    session: None,
                }),
                // CAST: The discriminant.
                state: Atomic::new(State::Idle as u32),
                result: Atomic::new(0),
                told: Atomic::new(0),
                through: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// The state. Any context.
    pub(crate) fn state(&self) -> State {
        let state = self.state.load(Acquire);
        [State::Idle, State::Done]
            .into_iter()
            // CAST: The discriminant.
            .find(|known| *known as u32 == state)
            .unwrap_or(State::Busy)
    }

    fn set_state(&self, state: State) {
        // CAST: The discriminant.
        self.state.store(state as u32, Release);
    }

    /// Takes the request that must be tried again.
    pub(crate) fn take_number(&self) -> Option<u64> {
        self.inner.try_take()?.number.take()
    }

    /// Notes the request that must be tried again.
    pub(crate) fn put_number(&self, number: u64) -> Result {
        self.inner.try_take().ok_or(EBUSY)?.number = Some(number);
        Ok(())
    }

    /// Submits request `number`. Sleeps if the plan waits for permits.
    ///
    /// # Errors
    ///
    /// `EAGAIN` without a permit, or those of [`Session::submit`]: the slot is then as before.
    pub(crate) fn start(self: &Arc<Self>, session: &Arc<Session>, number: u64) -> Result {
        {
            let mut inner = self.inner.try_take().ok_or(EBUSY)?;
            let plan = self.run.plan();
            if plan.chain {
                inner.session = Some(session.clone());
            }
            inner.permit = Some(session.permit(plan.connection, plan.wait).ok_or(EAGAIN)?);
        }
        match self.submit(Some(&**session), number) {
            Ok(()) => {
                self.run.note_submitted(false);
                self.pass_through();
                Ok(())
            }
            Err(e) => {
                self.give_back();
                self.set_state(State::Idle);
                Err(e)
            }
        }
    }

    /// Submits request `number`, with the slot's permit, on `session` or else on the chain's
    /// session. Any context. [`Slot::pass_through`] has to follow.
    fn submit(self: &Arc<Self>, session: Option<&Session>, number: u64) -> Result {
        let mut inner = self.inner.try_take().ok_or(EBUSY)?;
        let inner = &mut *inner;
        let plan = self.run.plan();
        let order = plan.order(number)?;
        order.write(&mut inner.message);
        if let (Some(data), DataDir::Write) = (&self.data, plan.dir) {
            Pattern::of_data(order.effective().seed).fill(0, &mut inner.staging);
            data.write(&inner.staging)?;
        }

        let mut parts = split(&inner.message, plan.pieces);
        let pieces: [Piece<'_>; MAX_PIECES] =
            core::array::from_fn(|_| Piece::new(parts.next().unwrap_or_default()));
        let pieces = pieces.get(..plan.pieces).ok_or(EINVAL)?;
        let session = session.or(inner.session.as_deref()).ok_or(EINVAL)?;
        let permit = inner.permit.as_ref().ok_or(EINVAL)?;

        inner.number = Some(number);
        self.told.store(0, Relaxed);
        self.through.store(0, Relaxed);
        self.set_state(State::Busy);
        let submitted = session.submit(permit, plan.dir, Message::new(pieces), self.clone());
        if submitted.is_err() {
            inner.number = None;
        }
        submitted
    }

    /// The submitter or the completion is done with the request.
    fn pass_through(self: &Arc<Self>) {
        let mut second = self.through.fetch_add(1, Full) == 1;
        while second {
            second = self.chain_on() && self.through.fetch_add(1, Full) == 1;
        }
    }

    /// Both are done. Returns whether another request was submitted. Any context.
    fn chain_on(self: &Arc<Self>) -> bool {
        if !self.run.plan().chain {
            self.finish();
            return false;
        }
        let next = self.check().ok().and_then(|()| self.run.claim());
        let Some(number) = next else {
            self.finish();
            return false;
        };
        match self.submit(None, number) {
            Ok(()) => {
                self.run.note_submitted(true);
                true
            }
            Err(_) => {
                // The run will try again.
                let _ = self.put_number(number);
                self.give_back();
                self.set_state(State::Done);
                self.run.note_done();
                false
            }
        }
    }

    /// Gives back the permit and the session. Any context.
    fn give_back(&self) {
        if let Some(mut inner) = self.inner.try_take() {
            inner.permit = None;
            inner.session = None;
        }
    }

    /// The request is complete, and the slot belongs to the run. Any context.
    fn finish(&self) {
        self.give_back();
        self.set_state(State::Done);
        self.run.note_done();
    }

    /// Checks the result of the last request in flight, unless that was done before. Any context.
    fn check(&self) -> Result {
        let mut inner = self.inner.try_take().ok_or(EBUSY)?;
        let Some(number) = inner.number.take() else {
            return Ok(());
        };
        let result = self.result.load(Relaxed);
        self.run.judge(result);
        let plan = self.run.plan();
        if let (Some(data), DataDir::Read, 0) = (&self.data, plan.dir, result) {
            let order = plan.order(number)?.effective();
            data.read(&mut inner.staging)?;
            if let Some(at) = Pattern::of_data(order.seed).mismatch(0, &inner.staging) {
                pr_err!("data read, of {} bytes: wrong at {}\n", plan.len, at);
                self.run.note_corrupt();
            }
        }
        Ok(())
    }

    /// Checks a slot that is done, and makes it idle.
    pub(crate) fn settle(&self) -> Result {
        // A request that must be tried again was not in flight.
        if self.told.load(Relaxed) != 0 {
            self.check()?;
        }
        self.set_state(State::Idle);
        Ok(())
    }
}

impl Request for Slot {
    fn data(&self) -> Option<&SgBuffer> {
        self.data.as_ref()
    }

    fn complete(this: Arc<Self>, result: i32) {
        let first = this.told.fetch_add(1, Full) == 0;
        this.run.note_told(first);
        if first {
            this.result.store(result, Relaxed);
            this.pass_through();
        }
    }
}

/// Cuts `message` into `pieces` parts of about the same length; some are empty if there are fewer
/// bytes than pieces.
fn split(message: &[u8], pieces: usize) -> impl Iterator<Item = &[u8]> {
    let len = message.len();
    let bound = move |i: usize| i * len / pieces.max(1);
    (0..pieces).map(move |i| message.get(bound(i)..bound(i + 1)).unwrap_or_default())
}
