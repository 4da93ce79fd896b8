// SPDX-License-Identifier: GPL-2.0

//! Protection domains and the memory that belongs to them.

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{
        static_lock_class,
        Arc,
        Mutex, //
    },
};

use super::{
    consumer::Consumer,
    device::{
        Device,
        DeviceRef, //
    },
    wr::Sge,
};
use crate::{
    atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    compat::dma,
    lock::lock_name,
    pages::Pages,
    raw, //
};

/// The direction in which data moves between memory and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DmaDirection {
    /// The device reads the memory.
    ToDevice = dma::TO_DEVICE,
    /// The device writes the memory.
    FromDevice = dma::FROM_DEVICE,
    /// Both.
    Bidirectional = dma::BIDIRECTIONAL,
}

impl DmaDirection {
    #[inline(always)]
    pub(super) fn as_raw(self) -> raw::dma_data_direction {
        // CAST: The discriminant.
        dma::raw(self as u8)
    }
}

/// Pages that the domain keeps mapped until it is dropped, or for good if a memory region cannot be
/// deregistered then.
struct Mapped {
    pages: Arc<Pages>,
    dma: u64,
    dir: DmaDirection,
}

/// The most pages of a memory region: 4 GiB of memory, the list of which takes 8 MiB.
const MOST_PAGES: u32 = 1 << 20;

/// The objects that live as long as the domain.
struct Owned {
    /// There may be some for each receive of many queue pairs.
    mapped: KVVec<Mapped>,
    mrs: KVec<NonNull<raw::ib_mr>>,
    kept: KVec<Arc<dyn Keep>>,
    /// Number of queue pairs that were ever counted.
    serial: u16,
}

/// The number of the next domain.
static NUMBERS: Atomic<u64> = Atomic::new(0);

/// Special value of the number of queue pairs: there will never be one again.
const ENDED: u32 = u32::MAX;

/// An object that work requests on queue pairs of a domain refer to. It stays as long as the
/// domain.
pub(super) trait Keep: Send + Sync {}

/// A protection domain with its device, its pages and its memory regions.
///
/// Queue pairs, [`Mr`](super::Mr)s and [`DmaPages`]s hold a reference. So the memory that a work
/// request refers to outlives the queue pair that it was posted on, without counting work requests.
///
/// Dropping it may sleep.
#[pin_data(PinnedDrop)]
pub struct Domain {
    pd: NonNull<raw::ib_pd>,
    lkey: u32,
    /// No other domain has or had the same.
    number: u64,
    queue_pairs: Atomic<u32>,
    #[pin]
    owned: Mutex<Owned>,
    // Dropped after the PD was deallocated in `drop()`.
    device: DeviceRef,
    // Dropped last: what is left of the domain has the module's name.
    consumer: Consumer,
}

// SAFETY: Verbs on a PD, and on memory regions, may be called from any thread, in parallel.
unsafe impl Send for Domain {}
// SAFETY: See above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Allocates a protection domain on `device`. `rdma resource` shows it with the name of
    /// `consumer`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is going away, `EOPNOTSUPP` when it cannot register memory by work
    /// request, or an error of the driver.
    pub fn new(device: &Device, consumer: &Consumer) -> Result<Arc<Self>> {
        if !device.attrs().mem_mgt_extensions {
            return Err(crate::errno::EOPNOTSUPP);
        }
        let device = device.get().ok_or(ENODEV)?;
        let name = kernel::str::CStrExt::as_char_ptr(consumer.name());
        // SAFETY: The device is valid. The name is static in the module, which is not unloaded
        // while there is a `Consumer`: the domain has one, and one is leaked if the PD stays.
        let pd = unsafe { raw::__ib_alloc_pd(device.as_raw(), 0, name) };
        let pd = NonNull::new(kernel::error::from_err_ptr(pd)?).ok_or(ENOMEM)?;
        let init = pin_init!(Self {
            pd,
            // SAFETY: `pd` is valid.
            lkey: unsafe { raw::rtrs_helper_ib_pd_lkey(pd.as_ptr()) },
            number: NUMBERS.fetch_add(1, Relaxed),
            queue_pairs: Atomic::new(0),
            owned <- Mutex::new(
                Owned {
                    mapped: KVVec::new(),
                    mrs: KVec::new(),
                    kept: KVec::new(),
                    serial: 0,
                },
                lock_name!("rtrs_domain"),
                static_lock_class!(),
            ),
            device,
            consumer: consumer.clone(),
        });
        Arc::pin_init(init, GFP_KERNEL).inspect_err(|_| {
            // SAFETY: `pd` was allocated above, and nothing else uses it.
            unsafe { raw::ib_dealloc_pd_user(pd.as_ptr(), core::ptr::null_mut()) };
        })
    }

    /// The device of the domain.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn as_raw(&self) -> *mut raw::ib_pd {
        self.pd.as_ptr()
    }

    pub(super) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The number of the domain, which no other one has or had.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Maps `pages` for the device for as long as the domain lives. May sleep.
    pub fn map(self: &Arc<Self>, pages: Arc<Pages>, dir: DmaDirection) -> Result<DmaPages> {
        let dev = self.device.as_raw();
        let mut owned = self.owned.lock();
        owned.mapped.reserve(1, GFP_KERNEL)?;
        // SAFETY: The device is valid, and `pages` has `len()` bytes of memory, which stays until
        // it is unmapped in `drop()`.
        let dma = unsafe {
            raw::rtrs_helper_ib_dma_map_single(
                dev,
                pages.as_ptr().cast(),
                pages.len(),
                dir.as_raw(),
            )
        };
        // SAFETY: The device is valid.
        if unsafe { raw::rtrs_helper_ib_dma_mapping_error(dev, dma) } != 0 {
            return Err(ENOMEM);
        }
        owned.mapped.push(
            Mapped {
                pages: pages.clone(),
                dma,
                dir,
            },
            GFP_KERNEL,
        )?;
        drop(owned);
        // SAFETY: The device is valid, and `dma` was just mapped for it.
        let needs_sync = unsafe { raw::rtrs_helper_ib_dma_need_sync(dev, dma) };
        Ok(DmaPages {
            domain: self.clone(),
            pages,
            dma,
            dir,
            needs_sync,
        })
    }

    /// Keeps `what` for as long as the domain lives. May sleep.
    pub(super) fn keep(&self, what: Arc<dyn Keep>) -> Result {
        self.owned.lock().kept.push(what, GFP_KERNEL)?;
        Ok(())
    }

    /// Counts a queue pair that is about to be created. Returns a number that no other queue pair
    /// of the domain has had. May sleep.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if the domain [has ended](Self::has_ended), `ENOSPC` after 65535 queue pairs.
    pub(super) fn add_queue_pair(&self) -> Result<u16> {
        let mut owned = self.owned.lock();
        let serial = owned.serial.checked_add(1).ok_or(ENOSPC)?;
        owned.serial = serial;
        drop(owned);
        loop {
            let n = self.queue_pairs.load(Relaxed);
            let more = n.checked_add(1).ok_or(crate::errno::ECONNABORTED)?;
            if self.queue_pairs.cmpxchg(n, more, Full).is_ok() {
                return Ok(serial);
            }
        }
    }

    /// Counts a queue pair that was destroyed.
    pub(super) fn remove_queue_pair(&self) {
        self.queue_pairs.fetch_sub(1, Full);
    }

    /// Whether all queue pairs of the domain are gone. If so, no queue pair can be created any
    /// more.
    pub(super) fn has_ended(&self) -> bool {
        // ORDERING: Full, so that everything done before the last queue pair was destroyed is
        // visible after this.
        self.queue_pairs.cmpxchg(0, ENDED, Full).is_ok() || self.queue_pairs.load(Relaxed) == ENDED
    }

    /// The most pages of a memory region. Drivers calculate with the number unchecked, and one reports
    /// 2^32 - 1 as its maximum.
    pub(super) fn most_pages(&self) -> u32 {
        self.device.attrs().max_fast_reg_pages.min(MOST_PAGES)
    }

    /// Allocates a memory region for fast registration of up to `pages` pages. It stays as long as
    /// the domain. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no pages, or more than the device has room for; `ENOMEM`, or an error of the
    /// driver.
    pub(super) fn alloc_mr(&self, pages: u32) -> Result<NonNull<raw::ib_mr>> {
        if pages == 0 || pages > self.most_pages() {
            return Err(EINVAL);
        }
        let mut owned = self.owned.lock();
        owned.mrs.reserve(1, GFP_KERNEL)?;
        // SAFETY: The PD is valid. The device has room for that many pages, and the size of their
        // list does not overflow.
        let mr = kernel::error::from_err_ptr(unsafe {
            raw::ib_alloc_mr(self.as_raw(), raw::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        let mr = NonNull::new(mr).ok_or(ENOMEM)?;
        owned.mrs.push(mr, GFP_KERNEL)?;
        Ok(mr)
    }
}

#[pinned_drop]
impl PinnedDrop for Domain {
    fn drop(self: Pin<&mut Self>) {
        let dev = self.device.as_raw();
        let mut owned = self.owned.lock();
        let mut left = false;
        for mr in owned.mrs.iter() {
            // SAFETY: The region was allocated in `alloc_mr()`. No queue pair of this domain is
            // left, so no work request can refer to it, and no `Mr` is left: they hold references
            // to the domain.
            let ret = unsafe { raw::ib_dereg_mr_user(mr.as_ptr(), core::ptr::null_mut()) };
            if ret != 0 {
                pr_warn!("memory region not deregistered: {}\n", ret);
                left = true;
            }
        }
        if left {
            // The device may still know the pages by that region: they stay mapped, and are lost.
            core::mem::forget(core::mem::take(&mut owned.mapped));
        }
        for m in owned.mapped.iter() {
            // SAFETY: The pages were mapped in `map()` with these arguments. No queue pair of this
            // domain is left, as above, and all memory regions were deregistered.
            unsafe {
                raw::rtrs_helper_ib_dma_unmap_single(dev, m.dma, m.pages.len(), m.dir.as_raw());
            }
        }
        drop(owned);
        if left {
            // Another domain must not get the number by which the device knows the region: a peer
            // that has the key could use it again.
            pr_warn!("protection domain kept, and the module with it\n");
            core::mem::forget(self.consumer.clone());
            return;
        }
        // SAFETY: The PD was allocated in `new()`; nothing uses it any more, see above.
        let ret = unsafe { raw::ib_dealloc_pd_user(self.pd.as_ptr(), core::ptr::null_mut()) };
        if ret != 0 {
            pr_warn!(
                "protection domain not deallocated: {}; the module stays\n",
                ret
            );
            // `rdma resource` goes on to show it, with the module's name.
            core::mem::forget(self.consumer.clone());
        }
    }
}

/// Memory mapped for the device of a domain, for the life of the domain.
///
/// The device, and through it the peer, may change the memory at any time, so it is only copied
/// from and to, never borrowed.
///
/// Dropping it may sleep, as it may have the last reference to the domain.
pub struct DmaPages {
    domain: Arc<Domain>,
    pages: Arc<Pages>,
    dma: u64,
    dir: DmaDirection,
    /// Device and processor are not coherent: each must be told about data that the other has
    /// written. Constant while the memory is mapped.
    needs_sync: bool,
}

impl DmaPages {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are no bytes; there always are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the pages for the device.
    pub(super) fn dma(&self) -> u64 {
        self.dma
    }

    /// Whether the device must be told about data that the CPU has written.
    pub fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The direction in which data moves.
    pub(super) fn direction(&self) -> DmaDirection {
        self.dir
    }

    /// The pages.
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// The domain of the pages.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// A local scatter/gather element for `[offset, offset + len)`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when that is not inside the pages, or empty: for some devices (mlx4) an element of
    /// no bytes is one of 2^31.
    #[inline(always)]
    pub fn sge(&self, offset: usize, len: usize) -> Result<Sge<'_>> {
        self.check(offset, len)?;
        if len == 0 {
            return Err(EINVAL);
        }
        // CAST: `check()` bounds both by the pages' length, which is far
        // below 4 GiB (`Pages` has at most `MAX_PAGE_ORDER`).
        Ok(Sge::new(
            &self.domain,
            self.dir,
            self.dma + offset as u64,
            len as u32,
            self.domain.lkey,
        ))
    }

    /// Hands a part of the pages to the CPU, then copies out of it.
    #[inline(always)]
    pub fn read(&self, offset: usize, buf: &mut [u8]) -> Result {
        self.sync_for_cpu(offset, buf.len());
        self.pages.read(offset, buf)
    }

    /// Hands `N` words at `offset` to the CPU, then reads them once. `None` if the memory is shorter.
    #[inline(always)]
    pub fn words<const N: usize>(&self, offset: usize) -> Option<[[u8; 8]; N]> {
        self.sync_for_cpu(offset, N.checked_mul(8)?);
        Some(self.pages.around::<N>(offset)?.words())
    }

    /// Copies into the pages, then hands that part to the device.
    #[inline(always)]
    pub fn write(&self, offset: usize, buf: &[u8]) -> Result {
        self.pages.write(offset, buf)?;
        self.sync_for_device(offset, buf.len());
        Ok(())
    }

    /// Makes data that the device wrote to `[offset, offset + len)` visible to the CPU. Does
    /// nothing on cache-coherent machines. A range outside the pages is ignored.
    #[inline(always)]
    pub fn sync_for_cpu(&self, offset: usize, len: usize) {
        if self.needs_sync {
            self.give_to_cpu(offset, len);
        }
    }

    #[inline(never)]
    fn give_to_cpu(&self, offset: usize, len: usize) {
        if self.check(offset, len).is_ok() {
            // SAFETY: The device is valid, and the range is inside the mapping. No overflow: the
            // range has an address.
            unsafe {
                raw::rtrs_helper_ib_dma_sync_for_cpu(
                    self.domain.device.as_raw(),
                    self.dma.wrapping_add(offset as u64),
                    len,
                    self.dir.as_raw(),
                );
            }
        }
    }

    /// Makes data that the CPU wrote to `[offset, offset + len)` visible to the device. A range
    /// outside the pages is ignored.
    #[inline(always)]
    fn sync_for_device(&self, offset: usize, len: usize) {
        if self.needs_sync {
            self.give_to_device(offset, len);
        }
    }

    #[inline(never)]
    fn give_to_device(&self, offset: usize, len: usize) {
        if self.check(offset, len).is_ok() {
            // SAFETY: The device is valid, and the range is inside the mapping. No overflow: the
            // range has an address.
            unsafe {
                raw::rtrs_helper_ib_dma_sync_for_device(
                    self.domain.device.as_raw(),
                    self.dma.wrapping_add(offset as u64),
                    len,
                    self.dir.as_raw(),
                );
            }
        }
    }
}
