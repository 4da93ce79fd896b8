// SPDX-License-Identifier: GPL-2.0

//! Protection domains and memory that devices can access.

use std::{
    alloc::{alloc_zeroed, dealloc, Layout},
    ptr::{self, NonNull},
    rc::Rc,
};

use anyhow::{bail, Context, Result};

use super::{check_ptr, raw, Queue};

/// An address of the other side, with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The address that the other side has sent.
    pub addr: u64,
    /// The key that the other side has sent.
    pub rkey: u32,
}

/// A protection domain.
pub struct Domain {
    pub(super) raw: NonNull<raw::ibv_pd>,
}

impl Domain {
    /// Memory that the device may read, and that other hosts may write to if they know the key.
    pub fn memory(self: &Rc<Self>, len: usize) -> Result<Rc<Mr>> {
        let layout = Layout::from_size_align(len.max(1), 4096).context("size of memory")?;
        // SAFETY: The size is not zero.
        let mem = unsafe { alloc_zeroed(layout) };
        let mem = check_ptr(mem, "memory")?;
        let access = raw::IBV_ACCESS_LOCAL_WRITE
            | raw::IBV_ACCESS_REMOTE_WRITE
            | raw::IBV_ACCESS_REMOTE_READ;
        // SAFETY: The domain is alive and this object owns the memory until the region is gone.
        // There are no references into it.
        let raw = unsafe {
            raw::ibv_reg_mr(
                self.raw.as_ptr(),
                mem.as_ptr().cast(),
                layout.size(),
                access as i32,
            )
        };
        match check_ptr(raw, "ibv_reg_mr") {
            Ok(raw) => Ok(Rc::new(Mr {
                raw,
                mem,
                layout,
                _domain: self.clone(),
            })),
            Err(e) => {
                // SAFETY: The memory was allocated above with this layout.
                unsafe { dealloc(mem.as_ptr(), layout) };
                Err(e)
            }
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: All objects in the domain hold a reference, so none exists any more.
        unsafe { raw::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// Registered memory.
pub struct Mr {
    raw: NonNull<raw::ibv_mr>,
    mem: NonNull<u8>,
    layout: Layout,
    _domain: Rc<Domain>,
}

impl Mr {
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    fn range(&self, off: usize, len: usize) -> Result<NonNull<u8>> {
        match off.checked_add(len) {
            Some(end) if end <= self.len() => {}
            _ => bail!("{len} bytes at {off} are outside of {} bytes", self.len()),
        }
        // SAFETY: The offset is within the allocation.
        Ok(unsafe { self.mem.add(off) })
    }

    /// Copies into the memory.
    pub fn write(&self, off: usize, data: &[u8]) -> Result<()> {
        let to = self.range(off, data.len())?;
        // SAFETY: The range is checked; there are no references into the memory, so nothing
        // overlaps.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        Ok(())
    }

    /// Copies out of the memory.
    pub fn read(&self, off: usize, len: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; len];
        let from = self.range(off, len)?;
        // SAFETY: The range is checked; there are no references into the memory, so nothing
        // overlaps.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), data.as_mut_ptr(), len) };
        Ok(data)
    }

    /// Address and key of offset `off` for the other side.
    pub fn remote(&self, off: usize) -> Result<Remote> {
        let addr = self.range(off, 0)?;
        // SAFETY: The region is alive.
        let raw = unsafe { self.raw.as_ref() };
        Ok(Remote {
            // CAST: Addresses have 64 bits on all machines with RDMA.
            addr: addr.addr().get() as u64,
            rkey: raw.rkey,
        })
    }

    /// A part of the memory.
    pub fn slice(self: &Rc<Self>, off: usize, len: usize) -> Slice<'_> {
        Slice { mr: self, off, len }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: Queue pairs that may use the region hold a reference, so none exists any more.
        unsafe { raw::ibv_dereg_mr(self.raw.as_ptr()) };
        // SAFETY: The memory was allocated with this layout, and the device does not use it any
        // more.
        unsafe { dealloc(self.mem.as_ptr(), self.layout) };
    }
}

/// A part of registered memory.
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    mr: &'a Rc<Mr>,
    off: usize,
    len: usize,
}

impl Slice<'_> {
    /// The form for the device; the memory stays until `queue` is gone.
    pub(super) fn sge(&self, queue: &Queue) -> Result<raw::ibv_sge> {
        let addr = self.mr.range(self.off, self.len)?;
        let mut used = queue.used.borrow_mut();
        if !used.iter().any(|mr| Rc::ptr_eq(mr, self.mr)) {
            used.push(self.mr.clone());
        }
        // SAFETY: The region is alive.
        let raw = unsafe { self.mr.raw.as_ref() };
        Ok(raw::ibv_sge {
            // CAST: Addresses have 64 bits on all machines with RDMA.
            addr: addr.addr().get() as u64,
            length: u32::try_from(self.len).context("length of a message")?,
            lkey: raw.lkey,
        })
    }
}
