// SPDX-License-Identifier: GPL-2.0

//! Answers to requests, right and wrong ones, as a plan says.

use anyhow::Result;

use super::{
    plan::{Answer, DataTo, Say},
    Rogue, READ_ERRNO, TX_SIZE,
};
use crate::{
    client::proto,
    fuzz::script::Mutation,
    proto::{Imm, IoErrno, ReadMsg, RkeyRsp, SgDesc},
    verbs::{Mr, Remote, Send},
};

/// Type of an immediate value, and that of an answer which says that the chunk has its next key. Such
/// an answer has no error, so what has one cannot be encoded.
const TYPE: u32 = 0xf << 28;
const NEXT_KEY: u32 = 3 << 28;

/// The parts of a request that a rogue uses.
pub(super) struct Request {
    pub(super) buf_id: u16,
    /// Destination of the data.
    pub(super) read: Option<SgDesc>,
    /// The same of the last request of the chunk.
    pub(super) last: Option<SgDesc>,
}

impl Request {
    /// The place from which `to` counts.
    fn dest(&self, to: DataTo) -> Option<SgDesc> {
        match to {
            DataTo::Last => self.last,
            DataTo::Len(_) | DataTo::Off(_) | DataTo::Key(_) => self.read,
        }
    }
}

/// Returns the destination of the data, if the message at `at` bytes is a read with data.
pub(super) fn read_desc(chunks: &Mr, at: usize) -> Result<Option<SgDesc>> {
    let len = ReadMsg::MAX_SIZE.min(chunks.len().saturating_sub(at));
    let msg = chunks.read(at, len)?;
    Ok(ReadMsg::parse(&msg)
        .ok()
        .and_then(|read| read.dest.map(|dest| dest.desc)))
}

impl Rogue<'_> {
    /// Does what the plan says about a request.
    pub(super) fn say(
        &mut self,
        uuid: [u8; 16],
        cid: u16,
        request: Option<&Request>,
        say: &Say,
    ) -> Result<()> {
        let Some(path) = self.paths.get_mut(&uuid) else {
            return Ok(());
        };
        if path.mute {
            return Ok(());
        }
        match say {
            Say::Mute => {
                path.mute = path.plan.mute;
                Ok(())
            }
            Say::Times(n, say) => {
                for _ in 0..*n {
                    self.say(uuid, cid, request, say)?;
                }
                Ok(())
            }
            Say::Leave(con) => {
                self.leave(uuid, cid + con);
                Ok(())
            }
            Say::Value(con, imm) => {
                let op = Send::WriteImm(Remote::default(), *imm);
                self.post(uuid, cid + con, op, &[])
            }
            Say::MsgImm(con, imm, len) => {
                self.post(uuid, cid + con, Send::MsgImm(*imm), &vec![0; *len])
            }
            Say::Msg(con, len) => self.post(uuid, cid + con, Send::Msg, &vec![0; *len]),
            Say::Inval(con, key) => {
                let right = request.and_then(|r| r.read).map_or(0, |d| d.rkey);
                self.post(uuid, cid + con, Send::MsgInv(key.of(right)), &[])
            }
            Say::Data(to) => match request.and_then(|r| r.dest(*to)) {
                Some(desc) => self.data(uuid, cid, desc, *to),
                None => Ok(()),
            },
            Say::Right => {
                if let Some(desc) = request.and_then(|r| r.read) {
                    self.data(uuid, cid, desc, DataTo::Len(0))?;
                }
                self.answered += 1;
                self.answer(uuid, cid, request, &Answer::default())
            }
            Say::Answer(answer) => self.answer(uuid, cid, request, answer),
        }
    }

    /// Sends zeros for a read.
    fn data(&mut self, uuid: [u8; 16], cid: u16, desc: SgDesc, to: DataTo) -> Result<()> {
        let mut len = desc.len;
        let mut at = Remote {
            addr: desc.addr,
            rkey: desc.rkey,
        };
        match to {
            DataTo::Len(more) => len = len.saturating_add_signed(more),
            DataTo::Off(off) => at.addr = at.addr.wrapping_add_signed(off),
            DataTo::Key(bits) => at.rkey ^= bits,
            DataTo::Last => {}
        }
        let len = (len as usize).min(TX_SIZE / 2);
        self.post(uuid, cid, Send::Write(at), &vec![0; len])
    }

    fn answer(
        &mut self,
        uuid: [u8; 16],
        cid: u16,
        request: Option<&Request>,
        answer: &Answer,
    ) -> Result<()> {
        let Some(path) = self.paths.get(&uuid) else {
            return Ok(());
        };
        let buf_id = request.map_or(0, |r| r.buf_id);
        let errno = match request {
            // Answers without an error are for writes, except those of other kinds, which have none.
            Some(request) if request.read.is_some() && answer.errno == 0 && !answer.next_key => {
                READ_ERRNO
            }
            _ => answer.errno,
        };
        let errno = IoErrno::from_kernel(-(errno as i32));
        let imm = Imm::IoRsp {
            msg_id: (u32::from(buf_id) ^ answer.id) & 0x7_ffff,
            errno,
            inval: answer.inval,
        };
        let imm = imm.encode().map_err(proto)?;
        if answer.next_key {
            let op = Send::WriteImm(Remote::default(), NEXT_KEY | imm & !TYPE);
            return self.post(uuid, cid + answer.con, op, &[]);
        }
        let inval = answer.by_inval.zip(request.and_then(|r| r.read));
        // A message that invalidates a key has no value, with old keys neither.
        let by_write = match self.job.old_keys {
            true => inval.is_none() && !answer.other_form,
            false => answer.other_form,
        };
        if by_write {
            let op = Send::WriteImm(Remote::default(), imm);
            return self.post(uuid, cid + answer.con, op, &[]);
        }
        let rsp = RkeyRsp {
            buf_id,
            rkey: path.chunks.remote(0)?.rkey,
        };
        let mut msg = rsp.to_bytes().to_vec();
        if answer.id != 0 {
            // The message agrees with the value.
            let id = u64::from(u32::from(buf_id) ^ answer.id);
            Mutation::Set(2, 2, id).apply(&mut msg);
        }
        for mutation in &answer.body {
            mutation.apply(&mut msg);
        }
        let op = match inval {
            Some((key, desc)) => Send::MsgInv(key.of(desc.rkey)),
            None => Send::MsgImm(imm),
        };
        self.post(uuid, cid + answer.con, op, &msg)
    }
}
