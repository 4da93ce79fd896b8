// SPDX-License-Identifier: GPL-2.0

//! Properties of a request: the memory that the user works on, and the kind of its answer.
//!
//! They are parts of an [`Op`](super::Op), and belong to the task that has it.

use rtrs_core::proto::DataDir;

/// The memory that the user works on, and the step that has to come before.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// The chunk.
    Chunk = 0,
    /// Private pages: pages to which the client has no key.
    Private = 1,
    /// The page in which the data of a write were received, to which the client has no key.
    Received = 3,
    /// The chunk, after its key is invalid, and the message of a write is read.
    Late = 4,
    /// Private pages, after the data of a write are copied there.
    Uncopied = 5,
    /// The chunk, after the message is read.
    Unread = 6,
}

impl Stage {
    /// Whether no step has to come before.
    #[inline(always)]
    pub(super) fn is_ready(self) -> bool {
        // CAST: The discriminant.
        (self as u8) < Self::Late as u8
    }

    /// Whether the user works on memory to which the client has no key.
    #[inline(always)]
    pub(super) fn is_private(self) -> bool {
        // CAST: The discriminant.
        self as u8 & 1 != 0
    }
}

/// The answer to a request, if there is no error. The kinds are told apart by bits, one for each
/// question, so that the usual ones need few tests.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AnswerKind {
    /// [Plain](super::Chunk::answer_plain), without data.
    Empty = 0,
    /// Plain, with the data of a read.
    Data = Self::DATA,
    /// It changes the chunk's key to the [next](rtrs_core::proto::next_rkey) one, which a client that
    /// counts keys is not told, after a write.
    Count = 1 << 1,
    /// It has the data of a read, and the key of their destination is invalidated.
    KeepRead = Self::KEYS | Self::DATA,
    /// The same, and it tells the chunk's key, which stays as it is.
    TellRead = Self::KEYS | Self::DATA | 1,
    /// The same, and the message that invalidates the key of the destination is the answer.
    TellInval = Self::KEYS | Self::DATA | Self::BY_INVAL,
    /// The same, if the client may have counted the key since it was last told.
    RetellInval = Self::KEYS | Self::DATA | Self::BY_INVAL | 1,
    /// It tells the chunk's key, which stays as it is, and has no data.
    Tell = Self::KEYS | 1 << 2,
    /// It changes the chunk's key, and tells it, after a write.
    Write = Self::KEYS | Self::REGISTERS,
    /// It changes the chunk's key, and tells it, and has the data of a read; the key of their
    /// destination is invalidated.
    Read = Self::KEYS | Self::REGISTERS | Self::DATA,
    /// The same, and the message that invalidates the key of the destination is the answer.
    Inval = Self::KEYS | Self::REGISTERS | Self::DATA | Self::BY_INVAL,
    /// None of the others.
    Other = 1,
}

impl AnswerKind {
    const DATA: u8 = 1 << 3;
    const KEYS: u8 = 1 << 4;
    const BY_INVAL: u8 = 1 << 5;
    const REGISTERS: u8 = 1 << 6;

    #[inline(always)]
    fn is_any(self, of: u8) -> bool {
        // CAST: The discriminant.
        self as u8 & of != 0
    }

    /// Whether the answer [has keys](super::Chunk::answer_keys).
    #[inline(always)]
    pub(crate) fn has_keys(self) -> bool {
        self.is_any(Self::KEYS)
    }

    /// Whether the answer has the data of a read.
    #[inline(always)]
    pub(crate) fn has_data(self) -> bool {
        self.is_any(Self::DATA)
    }

    /// Whether the message that invalidates the key of the destination is the answer.
    #[inline(always)]
    pub(super) fn is_by_inval(self) -> bool {
        self.is_any(Self::BY_INVAL)
    }

    /// Whether the answer registers the chunk's key, if it has keys.
    #[inline(always)]
    pub(super) fn registers(self) -> bool {
        self.is_any(Self::REGISTERS)
    }
}

/// Properties of a request that are set with one store.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Marks {
    pub(super) dir: DataDir,
    /// The session's state of this chunk says that this operation runs; it has to be given back.
    pub(super) busy: bool,
    pub(super) stage: Stage,
    pub(super) answer: AnswerKind,
}

impl Marks {
    /// The marks of a request that was not read.
    pub(super) const UNREAD: Self = Self {
        dir: DataDir::Read,
        busy: false,
        stage: Stage::Unread,
        answer: AnswerKind::Other,
    };
}
