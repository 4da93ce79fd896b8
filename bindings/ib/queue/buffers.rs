// SPDX-License-Identifier: GPL-2.0

//! Receives that have memory of their own, for messages the data of which are kept.
//!
//! Each receive of such a queue pair has a [`Buffer`], a page, and a few bytes for what follows it. When
//! a [`Message`] has arrived, its handler can exchange the page for another one, and the receive is
//! posted again with that. So receives are posted in the order in which they complete, as without
//! memory, although the data of some are used for long.
//!
//! # Context
//!
//! Creating may sleep. A [`Message`] exists while the handler of its completion runs.

use core::{
    cell::UnsafeCell,
    mem::swap,
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use super::{
    completion::Receiving,
    PostError,
    QueuePair, //
};
use crate::{
    ib::{
        domain::{
            DmaDirection,
            DmaPages,
            Domain, //
        },
        wc::Success,
    },
    pages::{
        Around,
        Pages, //
    },
    raw, //
};

/// The fewest bytes behind a page.
const MIN_REST: u32 = 64;

/// Bytes that are allocated at a time for what follows the pages.
const BLOCK: usize = 32 << 10;

/// The memory that a page is one of: the number of the domain that has it mapped, and whether device and
/// processor have to be told what the other has written. Pages of one kind can be exchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PageKind(u64);

impl PageKind {
    fn new(domain: &Domain, needs_sync: bool) -> Self {
        Self(domain.number() << 1 | u64::from(needs_sync))
    }

    #[inline(always)]
    fn needs_sync(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A page that receives of a domain's queue pairs can have.
///
/// It may outlive the domain: then it is memory like any other. If the device does not write to it
/// itself (swiotlb), the end of the domain writes what was received there once more.
///
/// # Invariants
///
/// `pages` is one page, which starts at `at`. The domain of its `kind` has it mapped at `dma`, for the
/// device to write to, for as long as that lives.
pub struct Buffer {
    at: NonNull<u8>,
    dma: u64,
    kind: PageKind,
    pages: Arc<Pages>,
}

// SAFETY: As for `Pages`.
unsafe impl Send for Buffer {}
// SAFETY: As for `Pages`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Makes a page, and maps it for the life of the domain. May sleep.
    pub fn new(domain: &Arc<Domain>) -> Result<Self> {
        let pages = Arc::new(Pages::new(0, domain.device().numa_node())?, GFP_KERNEL)?;
        let dma_pages = domain.map(pages.clone(), DmaDirection::FromDevice)?;
        // INVARIANT: It was just mapped. The order is 0.
        Ok(Self {
            at: NonNull::new(pages.as_ptr()).ok_or(EINVAL)?,
            dma: dma_pages.dma(),
            kind: PageKind::new(domain, dma_pages.needs_sync()),
            pages,
        })
    }

    /// The page.
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Its kernel address, for C code.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

/// The memory of one receive.
///
/// # Invariants
///
/// `pages` is one page, which starts at `at`, of a [`Buffer`] of the queue pair's domain. It is of the kind
/// of the queue pair's [`Buffers`], or those have their pages synchronised without need. The elements are
/// those of this page, and of `rest` bytes at `behind`, in memory that the domain keeps.
struct Slot {
    at: NonNull<u8>,
    pages: Arc<Pages>,
    behind: NonNull<u8>,
    sges: [raw::ib_sge; 2],
}

/// The memory of the receives of a queue pair, by token.
///
/// # Invariants
///
/// A slot is only accessed by the thread that handles completions of receives. The driver reads its
/// elements when the receive is posted: for the first time before it has completed once, and after that
/// by that thread.
pub(super) struct Buffers {
    slots: KVVec<UnsafeCell<Slot>>,
    /// Bytes behind each page.
    rest: u32,
    /// If some of the memory has to be synchronised, all of it is.
    kind: PageKind,
}

// SAFETY: By the type invariant, one thread at a time accesses a slot.
unsafe impl Send for Buffers {}
// SAFETY: As above.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Receives have no memory.
    pub(super) fn none(domain: &Domain) -> Self {
        Self {
            slots: KVVec::new(),
            rest: 0,
            kind: PageKind::new(domain, false),
        }
    }

    /// Whether receives have no memory.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The most elements of a receive.
    pub(super) fn sges(&self) -> u32 {
        // Receives without memory of their own may have one that is given.
        if self.is_empty() {
            1
        } else {
            2
        }
    }

    /// Makes the memory of `n` receives, each of a page and `rest` bytes, a power of two from 64 to 32768.
    /// May sleep.
    pub(super) fn new(domain: &Arc<Domain>, n: u32, rest: u32) -> Result<Self> {
        // CAST: `usize` has at least 32 bits.
        let size = rest as usize;
        if !rest.is_power_of_two() || rest < MIN_REST || size > BLOCK {
            return Err(EINVAL);
        }
        let mut this = Self {
            slots: KVVec::with_capacity(n as usize, GFP_KERNEL)?,
            rest,
            ..Self::none(domain)
        };
        let order = Pages::order_of(BLOCK);
        let mut block: Option<DmaPages> = None;
        let mut needs_sync = false;
        let mut used = BLOCK;
        for _ in 0..n {
            if used == BLOCK {
                let pages = Pages::new(order, domain.device().numa_node())?;
                let pages = Arc::new(pages, GFP_KERNEL)?;
                block = Some(domain.map(pages, DmaDirection::FromDevice)?);
                used = 0;
            }
            let block = block.as_ref().ok_or(EINVAL)?;
            let buffer = Buffer::new(domain)?;
            needs_sync |= buffer.kind.needs_sync() | block.needs_sync();
            let behind = block.pages().as_ptr().wrapping_add(used);
            // INVARIANT: The block has room for `rest` bytes there: they divide it. The domain keeps it.
            let slot = Slot {
                behind: NonNull::new(behind).ok_or(EINVAL)?,
                sges: [
                    raw::ib_sge {
                        addr: buffer.dma,
                        // CAST: The size of a page.
                        length: PAGE_SIZE as u32,
                        lkey: domain.lkey(),
                    },
                    block.sge(used, size)?.as_raw(),
                ],
                at: buffer.at,
                pages: buffer.pages,
            };
            this.slots.push_within_capacity(UnsafeCell::new(slot))?;
            // No overflow: at most a block.
            used = used.wrapping_add(size);
        }
        this.kind = PageKind::new(domain, needs_sync);
        Ok(this)
    }

    /// The elements of the receive with this token.
    pub(super) fn elements(&self, token: u32) -> Option<*mut raw::ib_sge> {
        let slot = self.slots.get(token as usize)?.get();
        // SAFETY: The slot is valid. No reference is made to it.
        Some(unsafe { &raw mut (*slot).sges }.cast())
    }
}

/// A message that has arrived in the memory of its receive, for the handler of that completion. It is
/// the receive as well, which has to be [posted again](Self::post_again).
///
/// # Invariants
///
/// The handler of the completion of the receive `token` runs on this thread. `slot` is its memory.
///
/// The receive is not posted, unless the handler has posted receives that had not completed.
pub struct Message<'h> {
    receiving: Receiving<'h>,
    buffers: &'h Buffers,
    slot: *mut Slot,
    token: u32,
}

impl<'h> Receiving<'h> {
    /// The message of the completion that is being handled; `None` if its receive has no memory.
    ///
    /// # Safety
    ///
    /// `wc` must be that completion, and this must be called only once for it.
    #[inline(always)]
    pub(super) unsafe fn message(self, wc: &Success) -> Option<Message<'h>> {
        let buffers = &self.queue_pair().buffers;
        let token = self.recv_token(wc);
        let index = token as usize;
        if index >= buffers.slots.len() {
            return None;
        }
        // SAFETY: Compared above. A reference would be one more value to keep.
        let slot = UnsafeCell::raw_get(unsafe { buffers.slots.as_ptr().add(index) });
        if buffers.kind.needs_sync() {
            // SAFETY: The receive has completed, and this is its handler.
            unsafe {
                sync(
                    self.queue_pair(),
                    slot,
                    raw::rtrs_helper_ib_dma_sync_for_cpu,
                )
            };
        }
        // INVARIANT: By the safety requirements of this function.
        Some(Message {
            receiving: self,
            buffers,
            slot,
            token,
        })
    }
}

/// Hands memory that is mapped for a device over.
type HandOver = unsafe extern "C" fn(*mut raw::ib_device, u64, usize, raw::dma_data_direction);

/// Hands the memory of a receive of `qp` over, to the device or to the processor.
///
/// # Safety
///
/// This thread must be the only one that accesses the slot.
#[cold]
#[inline(never)]
unsafe fn sync(qp: &QueuePair, slot: *const Slot, hand_over: HandOver) {
    let device = qp.domain().device().as_raw();
    let dir = DmaDirection::FromDevice.as_raw();
    // SAFETY: By the safety requirements of this function. The memory is mapped in this direction, and
    // the device is that of the domain.
    for sge in unsafe { (*slot).sges } {
        // SAFETY: As above.
        unsafe { hand_over(device, sge.addr, sge.length as usize, dir) };
    }
}

impl Message<'_> {
    /// The bytes up to `N` words behind offset `off` of the message. `None` if they are not in one
    /// piece: they must all be in the page, or all behind it. What lies there beyond the end of the
    /// message are bytes of earlier ones.
    #[inline(always)]
    pub fn around<const N: usize>(&self, off: usize) -> Option<Around<'_, N>> {
        const { assert!(N * 8 <= MIN_REST as usize) };
        // SAFETY: By the type invariant, this thread alone accesses the slot.
        let (at, behind) = unsafe { ((*self.slot).at, (*self.slot).behind) };
        let (start, off, room) = match off.checked_sub(PAGE_SIZE) {
            None => (at, off, PAGE_SIZE),
            Some(off) => (behind, off, self.buffers.rest as usize),
        };
        // No overflow: `room` is not less, see the assertion.
        if off > room.wrapping_sub(N * 8) {
            return None;
        }
        // SAFETY: `off` bytes precede that address in the memory, and the words follow, as just checked.
        // The domain keeps the memory for as long as the queue pair stays, also if the page is exchanged.
        Some(unsafe { Around::new(start.add(off), off) })
    }

    /// Exchanges the page with the first bytes of the message for `buffer`, which the receive gets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is of another domain, or if only one of the two has to be synchronised.
    #[inline(always)]
    pub fn exchange(&mut self, buffer: &mut Buffer) -> Result {
        if buffer.kind != self.buffers.kind {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant, this thread alone accesses the slot, and no driver reads its
        // elements at the moment.
        // INVARIANT: All that belongs to a page is exchanged, but the kind, which is the same.
        unsafe {
            swap(&mut (*self.slot).at, &mut buffer.at);
            swap(&mut (*self.slot).pages, &mut buffer.pages);
            swap(&mut (*self.slot).sges[0].addr, &mut buffer.dma);
        }
        Ok(())
    }

    /// Reads `N` bytes at offset `off` of the message, wherever they are; `None` if the receive has no
    /// room for them.
    #[inline(always)]
    pub fn bytes<const N: usize>(&self, off: usize) -> Option<[u8; N]> {
        // SAFETY: By the type invariant, this thread alone accesses the slot.
        unsafe { Self::read(self.slot, self.buffers.rest, off) }
    }

    /// The same. The parts of the message are passed by value: a whole one would have to be in memory.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy).
    #[cold]
    #[inline(never)]
    unsafe fn read<const N: usize>(slot: *const Slot, rest: u32, off: usize) -> Option<[u8; N]> {
        // SAFETY: By the safety requirements of this function.
        let (at, behind) = unsafe { ((*slot).at, (*slot).behind) };
        let room = PAGE_SIZE.checked_add(rest as usize)?;
        if off.checked_add(N)? > room {
            return None;
        }
        Some(core::array::from_fn(|i| {
            // No overflow: compared above.
            let off = off.wrapping_add(i);
            let from = match off.checked_sub(PAGE_SIZE) {
                None => at.as_ptr().wrapping_add(off),
                Some(off) => behind.as_ptr().wrapping_add(off),
            };
            // SAFETY: It is within the page, or the bytes behind it, as compared above. There are no
            // references to them.
            unsafe { from.read_volatile() }
        }))
    }

    /// Copies the first `len` bytes of the message to the start of `to`, for the device as well.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the receive has no room for so many, or `to`.
    #[inline(always)]
    pub fn copy_to(&self, len: usize, to: &DmaPages) -> Result {
        // SAFETY: By the type invariant, this thread alone accesses the slot.
        unsafe { Self::copy(self.slot, self.buffers.rest, len, to) }
    }

    /// The same, likewise.
    ///
    /// # Safety
    ///
    /// This thread must be the only one that accesses the slot, which must have `rest` bytes behind its
    /// page.
    #[cold]
    #[inline(never)]
    unsafe fn copy(slot: *const Slot, rest: u32, len: usize, to: &DmaPages) -> Result {
        let room = rest as usize;
        let (first, rest) = (len.min(PAGE_SIZE), len.saturating_sub(PAGE_SIZE));
        if rest > room {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirements of this function.
        let (at, behind) = unsafe { ((*slot).at, (*slot).behind) };
        let mut copied = 0;
        for (from, len) in [(at, first), (behind, rest)] {
            let mut off = 0;
            while off < len {
                let mut bytes = [0; 128];
                let bytes = bytes
                    .get_mut(..len.saturating_sub(off).min(128))
                    .ok_or(EINVAL)?;
                // SAFETY: `len` bytes at `from` are valid, see above, and `off` and `bytes` are within
                // them. There are no references to them.
                unsafe {
                    let from = from.as_ptr().add(off);
                    raw::rtrs_helper_copy(bytes.as_mut_ptr().cast(), from.cast(), bytes.len());
                }
                to.write(copied, bytes)?;
                off = off.saturating_add(bytes.len());
                copied = copied.saturating_add(bytes.len());
            }
        }
        Ok(())
    }

    /// Posts the receive again, now or together with others that [may
    /// wait](super::QueuePair::may_withhold).
    ///
    /// # Errors
    ///
    /// See [`Receiving::post_recv_again`].
    #[inline(always)]
    pub fn post_again(self) -> Result<(), PostError> {
        if self.buffers.kind.needs_sync() {
            let qp = self.receiving.queue_pair();
            // SAFETY: This is the handler of the receive.
            unsafe { sync(qp, self.slot, raw::rtrs_helper_ib_dma_sync_for_device) };
        }
        self.receiving.post_recv_again(self.token)
    }
}
