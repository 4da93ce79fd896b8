// SPDX-License-Identifier: GPL-2.0

//! One path's use of a session's word.

use kernel::sync::Arc;

use crate::logic::chunk_state::{
    Begin,
    ChunkState,
    End,
    Incarnation, //
};

/// The word of one chunk of a session, as one life of one path uses it. Any context.
pub(crate) struct Turn {
    word: Arc<ChunkState>,
    inc: Incarnation,
    buf_id: u16,
}

impl Turn {
    /// For chunk `buf_id` and the path's life `inc`.
    pub(crate) fn new(word: &Arc<ChunkState>, buf_id: u16, inc: Incarnation) -> Self {
        Self {
            word: word.clone(),
            inc,
            buf_id,
        }
    }

    /// The number of the chunk.
    pub(super) fn buf_id(&self) -> u16 {
        self.buf_id
    }

    /// A request came; see [`ChunkState::try_begin`].
    pub(crate) fn begin(&self) -> Begin {
        self.word.try_begin(self.inc)
    }

    /// A request came; see [`ChunkState::begin_free`].
    #[inline(always)]
    pub(crate) fn begin_free(&self) -> bool {
        self.word.begin_free(self.inc)
    }

    /// The request is over; see [`ChunkState::end`].
    #[inline(always)]
    pub(super) fn end(&self) -> End {
        self.word.end(self.inc)
    }
}
