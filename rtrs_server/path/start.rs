// SPDX-License-Identifier: GPL-2.0

//! Starts a path: the steps from its last connection to the first request. The owner task calls
//! these functions; all of them may sleep.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
};

use rtrs_bindings::{
    errno,
    ib::{
        Access,
        Buffer,
        Chain,
        DmaDirection,
        DmaPages,
        Domain,
        Equipped,
        KeyRight,
        Mr,
        Sges, //
    },
    pages::Pages,
    ratelimit::{
        pr_info_caused_by,
        pr_warn_caused_by, //
    },
    time::{
        msecs_to_jiffies,
        now_ns, //
    },
};
use rtrs_core::proto::{
    heartbeat::DEFAULT_INTERVAL_MS,
    InfoRsp,
    RkeyRsp,
    SgDesc, //
};

use super::{
    connect::takes_sends,
    receive::{
        RECV_EMPTY,
        SEND_INFO,
        SEND_REG, //
    },
    Owner,
    Path,
    NS_PER_MS, //
};
use crate::{
    active::{
        Active,
        Chunk, //
    },
    chunk::{
        UsedState,
        Usual, //
    },
    inbox::Inbox,
    logic::{
        path_state::CloseReason,
        receives, //
    },
    op::Op,
    ops_ref::OpsRef,
    sysfs::PathDir, //
};

/// Registrations posted at a time.
pub(super) const REG_BATCH: u32 = 16;

/// Time in milliseconds that registrations, which are local to the device, may take.
const REG_TIMEOUT_MS: u32 = 30_000;

impl Path {
    /// Starts the path, unless it has given way to another client: the user is not told of its
    /// session then.
    pub(super) fn prepare(self: &Arc<Self>, owner: &mut Owner) -> Result<(), CloseReason> {
        if !self.begin_start() {
            return Err(CloseReason::GaveWay);
        }
        // Looked at only now: a path that closes before it is started does not tell the user.
        let prepared = if self.is_closing() {
            Err(CloseReason::ConnError)
        } else {
            self.set_up(owner)
        };
        // The user has the session by now, or does not get it by this path.
        self.end_handshake();
        prepared
    }

    /// Makes all objects that IO needs, and tells the user.
    fn set_up(self: &Arc<Self>, owner: &mut Owner) -> Result<(), CloseReason> {
        let refused = |e: Error| {
            // Whatever fails then, the reason is known.
            if self.is_closing() {
                return CloseReason::ConnError;
            }
            pr_warn_caused_by!(
                self.log_place(),
                "{}: cannot be served: {:?}\n",
                self.label(),
                e
            );
            CloseReason::Refused
        };
        // Checked before memory is made for it: a client that comes and goes costs most here.
        if !self.session.ctx.registry.may_start(self.source) {
            pr_warn_caused_by!(
                self.log_place(),
                "{}: too many paths in short time\n",
                self.label()
            );
            return Err(CloseReason::Refused);
        }
        // Torn down in the right order from here on, whatever fails.
        owner.staged = Some(self.make_active().map_err(|e| {
            // Without operations no end of the last one says so.
            if !self.ops_out.load(Acquire) {
                self.end_chunk_memory();
            }
            refused(e)
        })?);
        let dir = self
            .session
            .path_up(self, |session_dir| {
                // The user's callback may have taken long, and the client may have come back
                // meanwhile.
                if self.is_closing() {
                    return Err(errno::ECONNABORTED);
                }
                if self.dir_in_the_way() {
                    return Err(EBUSY);
                }
                self.has_dir.store(true, Release);
                PathDir::new(session_dir, self).inspect_err(|_| self.has_dir.store(false, Release))
            })
            .map_err(refused)?;
        owner.dir = Some(dir);
        let active = owner.staged.as_ref().ok_or(CloseReason::ConnError)?;
        self.register(active).map_err(refused)?;
        // That took long, and a client that has left meanwhile is told nothing.
        if self.is_closing() {
            return Err(CloseReason::ConnError);
        }
        Ok(())
    }

    /// Admits IO.
    pub(super) fn serve(self: &Arc<Self>, owner: &mut Owner) -> Result<(), CloseReason> {
        let failed = |e: Error| {
            pr_warn_caused_by!(
                self.log_place(),
                "{}: cannot be served: {:?}\n",
                self.label(),
                e
            );
            CloseReason::ConnError
        };
        let active = owner.staged.take().ok_or(CloseReason::ConnError)?;
        let recvs = core::mem::take(&mut self.conns.setup.lock().recvs);
        for (ep, receives) in active.endpoints().iter().zip(recvs) {
            let qp = ep.qp();
            let posted = match qp.has_buffers() {
                true => qp.post_recv_buffers(receives.posted),
                false => qp
                    .post_recv_alike(RECV_EMPTY, receives.posted)
                    .map_err(Error::from),
            };
            if let Err(e) = posted {
                // Dropped by the teardown, in the right order.
                owner.staged = Some(active);
                return Err(failed(e));
            }
            // What is in the order of tokens is known now.
            qp.may_withhold(receives.spare);
        }

        let answer = self.info_answer(&active);

        if answer.is_ok() {
            self.session.note_served();
        }
        // Nothing was published before, so there is nothing to wait for.
        drop(self.active.replace(Some(active)));
        answer
            .and_then(|(dma_pages, len)| self.send_info(&dma_pages, len))
            .map_err(failed)?;
        self.has_told.store(true, Release);
        self.session.path_connected(self);
        owner.told = true;
        owner.next_tick = now_ns().saturating_add(u64::from(DEFAULT_INTERVAL_MS) * NS_PER_MS);
        pr_info_caused_by!(self.log_place(), "{}: connected\n", self.label());
        Ok(())
    }

    /// Makes connections, chunks, keys and operations.
    fn make_active(self: &Arc<Self>) -> Result<KBox<Active>> {
        let (domain, eps) = self.take_endpoints()?;
        // Taken only now: a client that only connects takes no chunks from others. The handshake
        // checked for room, so this fails only if other clients have taken it since.
        let context = &self.session.ctx;
        let config = &context.config;
        let takes_sends = takes_sends(config, domain.device(), &self.client);
        let memory = context
            .registry
            .take_chunks(self, config.chunk_memory(takes_sends))
            .map_err(|over| {
                pr_warn_caused_by!(self.log_place(), "{}: {}\n", self.label(), over);
                ENOMEM
            })?;
        if let Some(ep) = eps.first() {
            self.hca.populate((domain.device().name(), ep.port()));
        }

        self.session.make_chunk_states()?;
        let depth = self.geometry().queue_depth();
        let mut mapped = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        // CAST: At most 4 MiB.
        let size = self.geometry().chunk_size() as usize;
        for _ in 0..depth {
            mapped.push(map(&domain, size, DmaDirection::Bidirectional)?, GFP_KERNEL)?;
        }
        let always_invalidate = self.session.ctx.config.always_invalidate;
        let groups = if always_invalidate {
            KVec::new()
        } else {
            self.group(&domain, &mapped)?
        };
        let copy_max = config.copy_max;
        let mut private = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for len in (0..depth).map(|buf_id| config.private_len(buf_id)) {
            let dma_pages = match len {
                0 => None,
                // CAST: At most 64 KiB.
                len => Some(map(&domain, len as usize, DmaDirection::ToDevice)?),
            };
            private.push(dma_pages, GFP_KERNEL)?;
        }
        // Answers that tell keys, and those that are invalidations, which have the key as well.
        let has_bytes = always_invalidate || self.client.inval_answers_always;
        let rkeys = if has_bytes {
            let len = usize::from(depth)
                .checked_mul(RkeyRsp::SIZE)
                .ok_or(EINVAL)?;
            Some(map(&domain, len, DmaDirection::ToDevice)?)
        } else {
            None
        };

        let members = usize::from(depth) / groups.len().max(1);
        let ops_ref = OpsRef::new(self, memory)?;
        self.ops_out.store(true, Release);
        let mut chunks = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for (buf_id, dma_pages) in (0..depth).zip(mapped) {
            let (mr, key_right) = if always_invalidate {
                let (mr, right) = Mr::with_right(&domain, core::slice::from_ref(&dma_pages))?;
                (Some(mr), right)
            } else {
                (None, KeyRight::none())
            };
            let own = private.get(usize::from(buf_id)).and_then(Option::as_ref);
            let pages = own.map(|own| own.pages().clone());
            let received = match takes_sends {
                true => Some(Buffer::new(&domain)?),
                false => None,
            };
            let memory = dma_pages.pages().clone();
            let op = Op::new(self, buf_id, memory, key_right, pages, received, &ops_ref)?;
            let state = self.session.chunk_state(buf_id).ok_or(EINVAL)?;
            let state = UsedState::new(state, buf_id, self.incarnation);
            let group = usize::from(buf_id).checked_div(members).unwrap_or(0);
            let rkey = mr.as_ref().or_else(|| groups.get(group)).map(Mr::rkey);
            let told = rkeys.as_ref().zip(rkey);
            let chunk = Chunk::new(state, dma_pages, own, mr, told, op)?;
            chunks.push(chunk, GFP_KERNEL)?;
        }
        let mut inboxes = KVVec::with_capacity(eps.len(), GFP_KERNEL)?;
        for ep in eps.iter() {
            // Requests of the service connection may keep the user busy for long.
            let (queue, turns) = match ep.index() {
                0 => (&context.slow_queue, context.turns(self.source)),
                _ => (&context.io_queue, None),
            };
            inboxes.push(Inbox::new(self, queue, turns, &ops_ref)?, GFP_KERNEL)?;
        }
        let mapped = chunks.iter().map(|chunk| chunk.dma_pages());
        let own = Iterator::chain(private.iter().flatten(), rkeys.iter());
        let bytes = Iterator::chain(mapped, own).fold(0usize, |sum, dma_pages| {
            sum.saturating_add(dma_pages.pages().len())
        });
        // CAST: `usize` has at most 64 bits.
        let bytes = (bytes as u64).saturating_add(match takes_sends {
            // CAST: As above.
            true => u64::from(depth).saturating_mul(PAGE_SIZE as u64),
            false => 0,
        });
        let receives = self.received_into(&eps);
        self.memory
            .store(bytes.saturating_add(receives::memory(receives)), Relaxed);
        let copied = always_invalidate.then_some(copy_max);
        let usual = Usual::new(self.geometry(), copied, self.client);
        Active::new(
            self.geometry(),
            eps,
            chunks,
            inboxes,
            groups,
            usual,
            copy_max,
        )
    }

    /// The number of receives of the connections that have memory.
    fn received_into(&self, eps: &[Equipped<Self>]) -> u32 {
        let setup = self.conns.setup.lock();
        let receives = eps.iter().zip(setup.recvs.iter());

        receives
            .filter(|(ep, _)| ep.qp().has_buffers())
            .fold(0, |sum, (_, receives)| sum.saturating_add(receives.posted))
    }

    /// Takes the connections, which must be complete.
    fn take_endpoints(&self) -> Result<(Arc<Domain>, KVVec<Equipped<Self>>)> {
        let mut eps = KVVec::with_capacity(usize::from(self.cid_num), GFP_KERNEL)?;
        let mut setup = self.conns.setup.lock();

        if setup.closed || setup.eps.iter().any(Option::is_none) {
            return Err(EINVAL);
        }
        setup.closed = true;
        let domain = setup.domain.take().ok_or(EINVAL)?;
        for ep in setup.eps.iter_mut().filter_map(Option::take) {
            // Does not fail: there is room for all announced connections.
            eps.push(ep, GFP_KERNEL)?;
        }
        Ok((domain, eps))
    }

    /// Makes keys for groups of chunks. There are as few groups as possible, all of the same size,
    /// as clients require that.
    fn group(&self, domain: &Arc<Domain>, chunks: &[DmaPages]) -> Result<KVec<Mr>> {
        let depth = u32::from(self.geometry().queue_depth());
        let chunk_size = self.geometry().chunk_size();
        // Clients take the chunks of a group for contiguous, which those that are smaller than their
        // pages are not.
        // CAST: `usize` has at least 32 bits.
        let contiguous = chunks
            .iter()
            .all(|chunk| chunk.len() == chunk_size as usize);
        // If the kernel's pages are larger than the device's, the device counts its own.
        let most = match contiguous {
            true => Mr::most_of(domain, chunks).max(1),
            false => 1,
        };
        let size = (1..=depth.min(most))
            .rev()
            .find(|size| depth % size == 0)
            .unwrap_or(1);
        let mut groups = KVec::new();

        // CAST: At most 16 bits.
        for members in chunks.chunks(size as usize) {
            groups.push(Mr::of(domain, members)?, GFP_KERNEL)?;
        }
        Ok(groups)
    }

    /// Registers all keys. There may be more than the queue can hold, so this waits now and then,
    /// but not for each batch: where many paths start at once, most of their time would go by between
    /// the end of a batch and the turn of the task that waits for it.
    fn register(&self, active: &Active) -> Result {
        let qp = active.endpoints().first().map(|ep| ep.qp()).ok_or(EINVAL)?;
        let own = active.chunks().iter().filter_map(|chunk| chunk.mr());
        let mut mrs = Iterator::chain(own, active.groups()).peekable();
        // Half of the queue, as other messages may take some of it.
        let most = (qp.send_depth() / 2).max(REG_BATCH);
        let mut posted = 0u32;

        while mrs.peek().is_some() {
            let mut chain = Chain::<{ REG_BATCH as usize }>::new(qp);
            for mr in mrs.by_ref().take(REG_BATCH as usize) {
                chain.reg_mr(mr, Access::REMOTE_WRITE);
            }
            posted = posted.saturating_add(REG_BATCH);
            if mrs.peek().is_some() && posted.saturating_add(REG_BATCH) <= most {
                // If one fails, so do those that follow, and with them the chain that is waited for.
                chain.post(None)?;
                continue;
            }
            posted = 0;
            // The chain completes once, also with an error; after that there is no next one.
            chain.post(Some(SEND_REG))?;
            self.registered
                .wait_timeout(msecs_to_jiffies(REG_TIMEOUT_MS))?;
            if !self.registered_ok.load(Acquire) {
                return Err(EIO);
            }
        }
        Ok(())
    }

    /// Makes the info answer, which says where the chunks are.
    fn info_answer(&self, active: &Active) -> Result<(DmaPages, usize)> {
        let chunk_size = self.geometry().chunk_size();
        let mut descs = KVVec::new();
        for chunk in active.chunks() {
            if let Some(mr) = chunk.mr() {
                descs.push(describe(mr, chunk_size)?, GFP_KERNEL)?;
            }
        }
        if let Some(groups) = u32::try_from(active.groups().len())
            .ok()
            .filter(|&groups| groups != 0)
        {
            let members = u32::from(self.geometry().queue_depth()) / groups;
            let len = members.checked_mul(chunk_size).ok_or(EINVAL)?;
            for mr in active.groups() {
                descs.push(describe(mr, len)?, GFP_KERNEL)?;
            }
        }

        let count = u16::try_from(descs.len())?;
        let mut message = KVVec::from_elem(0, InfoRsp::size(count), GFP_KERNEL)?;
        let len = InfoRsp::write(descs.iter().copied(), &mut message).map_err(|_| EINVAL)?;
        let domain = active.chunks().first().ok_or(EINVAL)?.dma_pages().domain();
        let dma_pages = map(domain, message.len(), DmaDirection::ToDevice)?;
        dma_pages.write(0, &message)?;
        Ok((dma_pages, len))
    }

    /// Sends the info answer. Requests may arrive from then on.
    fn send_info(&self, dma_pages: &DmaPages, len: usize) -> Result {
        let body = Sges::from(dma_pages.sge(0, len)?);
        let guard = rcu::read_lock();
        let qp = self
            .active
            .read(&guard)
            .and_then(|active| Some(active.endpoints().first()?.qp()))
            .ok_or(EINVAL)?;

        Chain::<1>::new(qp).send(&body).post(Some(SEND_INFO))?;
        Ok(())
    }
}

fn describe(mr: &Mr, len: u32) -> Result<SgDesc> {
    let at = mr.remote();

    Ok(SgDesc {
        addr: at.addr,
        rkey: at.rkey,
        len,
    })
}

/// Allocates zeroed memory of `len` bytes, mapped for the device. May sleep.
fn map(domain: &Arc<Domain>, len: usize, dir: DmaDirection) -> Result<DmaPages> {
    let pages = Pages::new(Pages::order_of(len), domain.device().numa_node())?;

    domain.map(Arc::new(pages, GFP_KERNEL)?, dir)
}
