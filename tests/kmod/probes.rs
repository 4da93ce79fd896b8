// SPDX-License-Identifier: GPL-2.0

//! Single operations that must be refused, and permits.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use rtrs_bindings::{
    errno::EPROTO,
    pages::Pages,
    time,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use rtrs_client::api::{
    Connection,
    DataDir,
    Message,
    Permit,
    Piece,
    Request,
    Session,
    SgBuffer,
    Wait, //
};

use crate::{
    order::{
        How,
        Order, //
    },
    pattern::Pattern,
};

/// A request that records its completions.
#[pin_data]
struct Probe {
    data: Option<Arc<SgBuffer>>,
    told: Atomic<u32>,
    result: Atomic<i32>,
    #[pin]
    wait: WaitQueue,
}

impl Request for Probe {
    fn data(&self) -> Option<&SgBuffer> {
        self.data.as_deref()
    }

    fn complete(this: Arc<Self>, result: i32) {
        this.result.store(result, Relaxed);
        this.told.fetch_add(1, Full);
        this.wait.wake_all();
    }
}

/// Milliseconds that an answer may take.
const PATIENCE_MS: u32 = 30_000;

/// The seed of data and messages.
const SEED: u64 = 1;

impl Probe {
    /// Makes a request without data.
    fn new() -> Result<Arc<Self>> {
        Self::with(None)
    }

    fn with(data: Option<Arc<SgBuffer>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                data,
                told: Atomic::new(0),
                result: Atomic::new(0),
                wait <- new_wait_queue!("rtrs_test_probe"),
            }),
            GFP_KERNEL,
        )
    }

    /// Submits the request; the server answers after `delay_ms`.
    fn submit(self: &Arc<Self>, session: &Session, permit: &Permit, delay_ms: u32) -> Result {
        let mut message = [0; 32];
        Order {
            how: How::Work,
            errno: 0,
            seed: SEED,
            data_len: u32::try_from(self.data.as_ref().map_or(0, |data| data.len()))?,
            // CAST: 32.
            msg_len: message.len() as u32,
            delay_ms,
        }
        .write(&mut message);
        let pieces = [Piece::new(&message)];
        session.submit(permit, DataDir::Write, Message::new(&pieces), self.clone())
    }

    /// Waits for the completion, which must be a success, and the only one.
    fn wait(&self) -> Result {
        self.wait
            .wait_until_timeout(time::msecs_to_jiffies(PATIENCE_MS), || {
                self.told.load(Acquire) != 0
            })?;
        if (self.told.load(Acquire), self.result.load(Relaxed)) == (1, 0) {
            Ok(())
        } else {
            Err(EPROTO)
        }
    }

    /// Checks that the request was never completed, and never will be.
    fn never_told(self: Arc<Self>) -> Result {
        let told = self.told.load(Acquire);
        match Arc::into_unique_or_drop(self) {
            Some(_) if told == 0 => Ok(()),
            _ => Err(EPROTO),
        }
    }
}

/// `Err(EPROTO)` unless `result` is this error.
fn refused_with(result: Result, error: Error) -> Result {
    match result {
        Err(e) if e == error => Ok(()),
        Err(e) => {
            pr_err!(
                "refused with {} instead of {}\n",
                e.to_errno(),
                error.to_errno()
            );
            Err(EPROTO)
        }
        Ok(()) => {
            pr_err!("not refused with {}\n", error.to_errno());
            Err(EPROTO)
        }
    }
}

/// A permit whose request is in flight cannot submit a second one before that completes. It can be
/// dropped while its request is in flight. Sleeps.
pub(crate) fn busy_permit(session: &Session, delay_ms: u32) -> Result {
    let permit = session.permit(Connection::Io, Wait::Yes).ok_or(EAGAIN)?;
    let (first, second, third) = (Probe::new()?, Probe::new()?, Probe::new()?);
    first.submit(session, &permit, delay_ms)?;
    let refused = refused_with(second.submit(session, &permit, 0), EBUSY);
    first.wait()?;
    refused?;
    second.never_told()?;
    third.submit(session, &permit, delay_ms)?;
    // The request gives the permit back: otherwise closing the session would wait for ever.
    drop(permit);
    third.wait()
}

/// Data of a request in flight cannot be in a second request, not even in the same one again,
/// before the first completes. Sleeps.
pub(crate) fn busy_data(session: &Session, delay_ms: u32) -> Result {
    let permit = session.permit(Connection::Io, Wait::Yes).ok_or(EAGAIN)?;
    let other = session.permit(Connection::Io, Wait::Yes).ok_or(EAGAIN)?;
    let mut bytes = [0; 512];
    Pattern::of_data(SEED).fill(0, &mut bytes);
    // Pages of the module's own, which are not copied.
    let pages = Arc::new(Pages::new(0, -1)?, GFP_KERNEL)?;
    pages.write(bytes.len(), &bytes)?;
    let data = SgBuffer::of_pages([(pages, bytes.len(), bytes.len())].into_iter())?;
    let data = Arc::new(data, GFP_KERNEL)?;
    let probe = || Probe::with(Some(data.clone()));
    let (first, second, third) = (probe()?, probe()?, probe()?);
    first.submit(session, &permit, delay_ms)?;
    let refused = refused_with(second.submit(session, &other, 0), EBUSY)
        .and_then(|()| refused_with(first.submit(session, &other, 0), EBUSY));
    first.wait()?;
    refused?;
    second.never_told()?;
    third.submit(session, &other, 0)?;
    third.wait()
}

/// A permit of another session is refused. Sleeps.
pub(crate) fn foreign_permit(session: &Session, other: &Session) -> Result {
    let permit = other.permit(Connection::Io, Wait::Yes).ok_or(EAGAIN)?;
    let probe = Probe::new()?;
    refused_with(probe.submit(session, &permit, 0), EINVAL)?;
    probe.never_told()
}

/// Takes all permits and keeps them for a while; returns their number. Sleeps.
///
/// # Errors
///
/// `EPROTO` if two permits have the same number, or one has a number beyond their count.
pub(crate) fn all_permits(session: &Session, hold_ms: u32) -> Result<usize> {
    let depth = session.limits().ok_or(EINVAL)?.queue_depth;
    let mut permits = KVVec::with_capacity(usize::from(depth) + 1, GFP_KERNEL)?;
    let mut seen = KVVec::from_elem(false, usize::from(depth), GFP_KERNEL)?;
    while let Some(permit) = session.permit(Connection::Io, Wait::No) {
        let seen = seen.get_mut(usize::from(permit.id())).ok_or(EPROTO)?;
        if core::mem::replace(seen, true) {
            return Err(EPROTO);
        }
        permits.push(permit, GFP_KERNEL)?;
    }
    fsleep(Delta::from_millis(hold_ms.into()));
    Ok(permits.len())
}
