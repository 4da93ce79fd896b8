// SPDX-License-Identifier: GPL-2.0

//! A request as it lies in a chunk.

use kernel::sync::atomic::Relaxed;

use rtrs_core::proto::{
    Geometry,
    Kind,
    ProtoError,
    Request, //
};

use super::{
    op::{
        Marks,
        Stage,
        USR_ROOM, //
    },
    Chunk,
    Home,
    Op,
    DIR_SHIFT, //
};

/// Words of the longest message.
const WORDS: usize = Request::MAX_MSG / 8;

const _: () = assert!(WORDS * 8 == Request::MAX_MSG);

/// Where a request is, as its immediate value and completion say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Connection it came over, and is answered on.
    pub(crate) cid: u16,
    /// Offset of the message in the chunk.
    pub(crate) off: u32,
    /// Bytes the client wrote.
    pub(crate) byte_len: u32,
}

/// What is to be said of requests of a kind.
#[derive(Clone, Copy)]
struct Said {
    marks: Marks,
    /// To who looks on, but for the connection.
    stamp: u32,
}

/// Which requests of a path are usual, so that they are read as they arrive by the shortest way, and
/// what is to be said of them.
pub(crate) struct Usual {
    /// Their message begins below this offset, so that it is in the chunk as a whole.
    off: u32,
    /// They have so many bytes of data at most.
    data: u32,
    /// By [`Kind`].
    said: [Said; KINDS],
}

/// The kinds that there are.
const KINDS: usize = 4;

const _: () = assert!(
    (Kind::Read as usize) < KINDS
        && (Kind::ReadInval as usize) < KINDS
        && (Kind::Write as usize) < KINDS
        && (Kind::ReadNothing as usize) < KINDS
);

impl Usual {
    /// Of a path of these limits. With `copy_max` up to so many bytes of data are in private pages, 0
    /// for none, without it all in chunks. A client that `keeps_keys` is not told of one that does
    /// not change.
    pub(crate) fn new(geometry: &Geometry, copy_max: Option<u32>, keeps_keys: bool) -> Self {
        // CAST: 24. The smallest chunk is larger.
        let whole = geometry
            .chunk_size()
            .saturating_sub(Request::MAX_MSG as u32 - 1);
        let off = match copy_max {
            None => whole,
            Some(0) => 0,
            // What precedes the message. CAST: 320.
            Some(data) => whole.min(data.saturating_add(USR_ROOM as u32)),
        };
        let said = |kind: Kind| Said {
            marks: Marks {
                dir: kind.dir(),
                busy: true,
                stage: match (copy_max, kind) {
                    (None, _) => Stage::Chunk,
                    (Some(_), Kind::Write) => Stage::Empty,
                    (Some(_), _) => Stage::Private,
                },
                plain: kind != Kind::ReadInval && (copy_max.is_none() || keeps_keys),
            },
            // CAST: A small number.
            stamp: (kind.dir() as u32) << DIR_SHIFT,
        };

        Self {
            off,
            data: copy_max.unwrap_or(u32::MAX),
            // In the order of their numbers.
            said: [Kind::Read, Kind::ReadInval, Kind::Write, Kind::ReadNothing].map(said),
        }
    }

    /// Whether a message at `off` can be one of theirs.
    #[inline(always)]
    pub(crate) fn can_be_at(&self, off: u32) -> bool {
        off < self.off
    }
}

impl<H: Home> Chunk<H> {
    /// Reads the request that `arrival` is about, and its user message, if it is a usual one that
    /// [can be there](Usual::can_be_at). `false` if not, or if anything is wrong with it: then what
    /// is in `op`, but for the arrival, counts for nothing.
    #[inline(always)]
    pub(crate) fn read_usual(
        &self,
        geometry: &Geometry,
        usual: &Usual,
        arrival: Arrival,
        op: &mut Op<H>,
    ) -> bool {
        let off = to_usize(arrival.off);

        self.region
            .sync_for_cpu(0, off.wrapping_add(Request::MAX_MSG));
        let pages = &**self.region.pages();
        let Some(message) = pages.read_words::<WORDS>(off) else {
            return false;
        };
        let usual_one = Request::parse_usual(geometry, arrival.off, arrival.byte_len, message);
        let Some(request) = usual_one else {
            return false;
        };
        if request.data_len() > usual.data {
            return false;
        }
        // PANIC: There are as many as kinds.
        let said = &usual.said[request.kind() as usize];
        self.stamp
            .store(u32::from(arrival.cid) | said.stamp, Relaxed);
        op.begin_at_once(request, said.marks, pages, off)
    }

    /// Parses a copy of the message that `arrival` is about.
    ///
    /// # Errors
    ///
    /// Those of [`Request::parse`]; [`ProtoError::Length`] if what was written is not what the
    /// immediate value says.
    pub(crate) fn parse(
        &self,
        geometry: &Geometry,
        arrival: Arrival,
    ) -> Result<Request, ProtoError> {
        let range = Request::msg_range(geometry, arrival.off)?;
        let mut message = [0; Request::MAX_MSG];
        let message = message.get_mut(..range.len()).ok_or(ProtoError::Length)?;

        self.region.sync_for_cpu(0, range.end);
        self.region
            .pages()
            .read(range.start, message)
            .map_err(|_| ProtoError::Offset)?;
        let (request, written) = Request::parse_written(geometry, arrival.off, message)?;
        if written != arrival.byte_len {
            return Err(ProtoError::Length);
        }
        self.wants(arrival.cid, request.dir());
        Ok(request)
    }
}

/// Widens a length; `usize` has at least 32 bits wherever there is RDMA.
fn to_usize(len: u32) -> usize {
    // CAST: See above.
    len as usize
}
