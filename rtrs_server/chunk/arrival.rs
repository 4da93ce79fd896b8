// SPDX-License-Identifier: GPL-2.0

//! A request in the memory of a chunk.

use kernel::sync::atomic::Relaxed;

use rtrs_bindings::{
    ib::Message,
    pages::Around, //
};
use rtrs_core::proto::{
    Capabilities,
    Geometry,
    Kind,
    ProtoError,
    Request,
    WriteMsg, //
};

use super::{
    marks::{
        AnswerKind,
        Marks,
        Stage, //
    },
    op::USR_ROOM,
    Chunk,
    Home,
    Op,
    DIR_SHIFT, //
};

/// Words of the longest message.
const WORDS: usize = Request::MAX_MSG / 8;

const _: () = assert!(WORDS * 8 == Request::MAX_MSG);

/// The place of a request, as its immediate value and completion say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// The connection it came over, which also carries the answer.
    pub(crate) cid: u16,
    /// Offset of the message in the chunk. This field and the next one are not set in an operation
    /// if its request was read on arrival.
    pub(crate) off: u32,
    /// Bytes the client wrote.
    pub(crate) byte_len: u32,
}

/// The result of reading a request as it arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// It was read.
    Done,
    /// The key of the chunk has to be invalidated. It was read, all but its data, which stay in the
    /// chunk: no other part is read again, so the client can write to the chunk until then. Or it is a
    /// write of so many data that they are not copied, and nothing was read.
    Keyed,
    /// It is not a usual one, or something is wrong with it. The contents of the operation are not
    /// valid.
    Not,
}

/// Properties of the requests of one kind.
#[derive(Clone, Copy)]
struct Said {
    marks: Marks,
    /// The value of the chunk's `stamp`, except for the connection.
    stamp: u32,
}

impl Said {
    /// The same of requests whose data are elsewhere.
    fn at(self, stage: Stage) -> Self {
        let marks = Marks {
            stage,
            ..self.marks
        };

        Self { marks, ..self }
    }
}

/// The usual requests of a path, which are read as they arrive by the shortest way, and their
/// properties.
pub(crate) struct Usual {
    /// Their message begins below this offset, so that all of it is in the chunk.
    off: u32,
    /// The key of a chunk with more than this number of bytes of data has to be invalidated, unless
    /// they are those of a read, and there are [private pages](Op::has_private_for) for them.
    data: u32,
    /// A request of more bytes than this is a write of more than `data` bytes, if it is a usual one.
    late: u32,
    /// By [`Kind`].
    said: [Said; KINDS],
    /// The same for more data.
    said_keyed: [Said; KINDS],
    /// For writes that were sent.
    said_sent: Said,
    /// For writes of so many bytes.
    said_late: Said,
}

/// How a request has arrived.
pub(crate) trait Origin {
    /// Reads the request of `arrival` and its user message, if it is a usual one and [can be
    /// there](Usual::can_be_at).
    fn read_usual<H: Home>(
        &mut self,
        chunk: &Chunk<H>,
        usual: &Usual,
        arrival: Arrival,
        op: &mut Op<H>,
    ) -> Read;

    /// Puts the request of `arrival`, which was not read, into the chunk: everything is done with it that
    /// would be done if it had been written there. Returns `false` if it must not arrive in this way.
    fn put_into<H: Home>(&mut self, chunk: &Chunk<H>, arrival: Arrival) -> bool;
}

/// By an RDMA write to the chunk.
pub(crate) struct Written;

impl Origin for Written {
    #[inline(always)]
    fn read_usual<H: Home>(
        &mut self,
        chunk: &Chunk<H>,
        usual: &Usual,
        arrival: Arrival,
        op: &mut Op<H>,
    ) -> Read {
        chunk.read_usual(usual, arrival, op)
    }

    #[inline(always)]
    fn put_into<H: Home>(&mut self, _: &Chunk<H>, _: Arrival) -> bool {
        true
    }
}

/// By a message.
impl Origin for Message<'_> {
    #[inline(always)]
    fn read_usual<H: Home>(
        &mut self,
        chunk: &Chunk<H>,
        usual: &Usual,
        arrival: Arrival,
        op: &mut Op<H>,
    ) -> Read {
        match chunk.read_sent(usual, arrival, self, op) && op.receive(self) {
            true => Read::Done,
            false => Read::Not,
        }
    }

    #[inline(always)]
    fn put_into<H: Home>(&mut self, chunk: &Chunk<H>, arrival: Arrival) -> bool {
        let len = to_usize(arrival.byte_len);

        // A write ends with its message. Other requests cannot be sent, nor more data.
        let is_write = len.checked_sub(WriteMsg::SIZE) == Some(to_usize(arrival.off))
            && self
                .bytes(to_usize(arrival.off))
                .is_some_and(|head| Request::may_be_sent(arrival.off, head));
        is_write && self.copy_to(len, &chunk.dma_pages).is_ok()
    }
}

/// The number of kinds.
const KINDS: usize = 4;

const _: () = assert!(
    (Kind::Read as usize) < KINDS
        && (Kind::ReadInval as usize) < KINDS
        && (Kind::Write as usize) < KINDS
        && (Kind::ReadNothing as usize) < KINDS
);

impl Usual {
    /// For a path of these limits. With `copy_max`, data up to that many bytes are in private pages
    /// (0 for none), and so are those of reads if a chunk has as many; without it, all data are in
    /// chunks. The `client` is not told a key that does not change if it keeps keys.
    pub(crate) fn new(geometry: &Geometry, copy_max: Option<u32>, client: Capabilities) -> Self {
        // CAST: The value is 320.
        let off = match Request::fits_usual(geometry, USR_ROOM as u32) {
            // CAST: The value is 24. The smallest chunk is larger.
            true => geometry
                .chunk_size()
                .saturating_sub(Request::MAX_MSG as u32 - 1),
            false => 0,
        };
        let is_told = copy_max.is_some() && !client.keeps_keys;
        let counts = copy_max.is_some() && client.counts_keys && client.keeps_keys;
        let by_inval = match copy_max {
            Some(_) => client.inval_answers,
            None => client.inval_answers_always,
        };
        let said = |kind: Kind| Said {
            marks: Marks {
                dir: kind.dir(),
                busy: true,
                stage: match (copy_max, kind) {
                    (None, _) => Stage::Chunk,
                    (Some(_), Kind::Write) => Stage::Uncopied,
                    (Some(_), _) => Stage::Private,
                },
                answer: match (kind, is_told) {
                    (Kind::ReadInval, _) if by_inval && counts => AnswerKind::RetellInval,
                    (Kind::ReadInval, _) if by_inval => AnswerKind::TellInval,
                    (Kind::ReadInval, true) => AnswerKind::TellRead,
                    (Kind::ReadInval, false) => AnswerKind::KeepRead,
                    // A client that wants its own key kept keeps those of chunks as well.
                    (Kind::Read, true) => AnswerKind::Other,
                    (Kind::Write | Kind::ReadNothing, true) => AnswerKind::Tell,
                    (kind, false) if kind.has_data_back() => AnswerKind::Data,
                    (_, false) => AnswerKind::Empty,
                },
            },
            // CAST: A small number.
            stamp: (kind.dir() as u32) << DIR_SHIFT,
        };
        let said_keyed = |kind: Kind| Said {
            marks: Marks {
                stage: Stage::Chunk,
                answer: match kind {
                    Kind::Write if counts => AnswerKind::Count,
                    Kind::Write => AnswerKind::Write,
                    Kind::ReadInval if client.inval_answers => AnswerKind::Inval,
                    Kind::ReadInval => AnswerKind::Read,
                    // There are no data, or a client that wants its key kept has so many of them.
                    Kind::Read | Kind::ReadNothing => AnswerKind::Other,
                },
                ..said(kind).marks
            },
            ..said(kind)
        };
        let said_sent = said(Kind::Write).at(Stage::Received);
        // Only a request that is not a usual one may be anything else.
        let said_late = said_keyed(Kind::Write).at(Stage::Late);
        // A usual message, and the user's in front of it, are shorter than that.
        // CAST: Small constants.
        let header = (USR_ROOM + Request::MAX_MSG) as u32;
        // In the order of their discriminants.
        let kinds = [Kind::Read, Kind::ReadInval, Kind::Write, Kind::ReadNothing];

        Self {
            off,
            data: copy_max.unwrap_or(u32::MAX),
            late: copy_max.map_or(u32::MAX, |data| data.saturating_add(header)),
            said: kinds.map(said),
            said_keyed: kinds.map(said_keyed),
            said_sent,
            said_late,
        }
    }

    /// Whether a message at `off` can be a usual one.
    #[inline(always)]
    pub(crate) fn can_be_at(&self, off: u32) -> bool {
        off < self.off
    }
}

impl<H: Home> Chunk<H> {
    /// Reads the request of `arrival` and its user message, if it is a usual one and [can be
    /// there](Usual::can_be_at).
    #[inline(always)]
    pub(crate) fn read_usual(&self, usual: &Usual, arrival: Arrival, op: &mut Op<H>) -> Read {
        if arrival.byte_len > usual.late {
            let said = &usual.said_late;
            self.say(said, arrival.cid);
            op.arrive_late(arrival, said.marks);
            return Read::Keyed;
        }
        let off = to_usize(arrival.off);

        self.dma_pages
            .sync_for_cpu(0, off.wrapping_add(Request::MAX_MSG));
        let Some(message) = self.dma_pages.pages().around::<WORDS>(off) else {
            return Read::Not;
        };
        // CAST: The value is 320.
        let room = USR_ROOM as u32;
        let words = message.words();
        let Some(request) = Request::parse_usual(room, arrival.off, arrival.byte_len, words) else {
            return Read::Not;
        };
        // Each of the two ways has code of its own, in which nothing is asked about the other.
        // PANIC: The arrays have one entry for each kind.
        let kind = request.kind() as usize;
        if request.data_len() > usual.data && !op.has_private_for(&request) {
            op.arrive(arrival);
            let said = &usual.said_keyed[kind];
            return match self.begin_read(said, request, arrival.cid, &message, op) {
                true => Read::Keyed,
                false => Read::Not,
            };
        }
        match self.begin_read(&usual.said[kind], request, arrival.cid, &message, op) {
            true => Read::Done,
            false => Read::Not,
        }
    }

    /// Reads a write of few data and its user message out of a message. Returns `false` if it is not a
    /// usual one.
    #[inline(always)]
    fn read_sent(
        &self,
        usual: &Usual,
        arrival: Arrival,
        message: &Message<'_>,
        op: &mut Op<H>,
    ) -> bool {
        let Some(message) = message.around::<1>(to_usize(arrival.off)) else {
            return false;
        };
        // CAST: The value is 320.
        let room = USR_ROOM as u32;
        let [head] = message.words();
        match Request::parse_sent(room, arrival.off, arrival.byte_len, head) {
            Some(request) => self.begin_read(&usual.said_sent, request, arrival.cid, &message, op),
            None => false,
        }
    }

    /// Begins a `request` that was read from `message`, with what is `said` of its kind. Returns
    /// `false` if anything is wrong with it.
    #[inline(always)]
    fn begin_read<const WORDS: usize>(
        &self,
        said: &Said,
        request: Request,
        cid: u16,
        message: &Around<'_, WORDS>,
        op: &mut Op<H>,
    ) -> bool {
        self.say(said, cid);
        op.begin_at_once(request, said.marks, cid, message)
    }

    /// Tells observers what is `said` of a request that came over connection `cid`.
    #[inline(always)]
    fn say(&self, said: &Said, cid: u16) {
        self.stamp.store(u32::from(cid) | said.stamp, Relaxed);
    }

    /// Whether the processor has to be told of data before the user sees them.
    #[inline(always)]
    pub(crate) fn needs_sync(&self) -> bool {
        self.dma_pages.needs_sync()
    }

    /// The key is invalid: makes the data of a request that was read visible to the user, if that is
    /// [needed](Self::needs_sync), or all of one that is [late](Op::arrive_late). What was seen of them
    /// before may have changed. Those of any other request are when it is [parsed](Self::parse).
    pub(crate) fn take_back(&self, op: &Op<H>) {
        let len = match op.is_late() {
            true => to_usize(op.arrival().byte_len),
            false => op.request().data_range().len(),
        };

        self.dma_pages.sync_for_cpu(0, len);
    }

    /// Parses a copy of the message of `arrival`.
    ///
    /// # Errors
    ///
    /// Those of [`Request::parse`]; [`ProtoError::Length`] if the number of bytes written does not
    /// match the immediate value.
    pub(crate) fn parse(
        &self,
        geometry: &Geometry,
        arrival: Arrival,
    ) -> Result<Request, ProtoError> {
        let range = Request::msg_range(geometry, arrival.off)?;
        let mut message = [0; Request::MAX_MSG];
        let message = message.get_mut(..range.len()).ok_or(ProtoError::Length)?;

        self.dma_pages.sync_for_cpu(0, range.end);
        self.dma_pages
            .pages()
            .read(range.start, message)
            .map_err(|_| ProtoError::Offset)?;
        let (request, written) = Request::parse_written(geometry, arrival.off, message)?;
        if written != arrival.byte_len {
            return Err(ProtoError::Length);
        }
        self.set_dir(arrival.cid, request.dir());
        Ok(request)
    }
}

/// Widens a length: `usize` has at least 32 bits on all machines with RDMA.
fn to_usize(len: u32) -> usize {
    // CAST: See above.
    len as usize
}
