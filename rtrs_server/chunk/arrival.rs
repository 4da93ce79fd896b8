// SPDX-License-Identifier: GPL-2.0

//! A request as it lies in a chunk.

use rtrs_core::proto::{
    Geometry,
    ProtoError,
    Request, //
};

use super::{
    Chunk,
    Home, //
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

impl<H: Home> Chunk<H> {
    /// Parses a copy of the message that `arrival` is about.
    ///
    /// # Errors
    ///
    /// Those of [`Request::parse`]; [`ProtoError::Length`] if what was written is not what the
    /// immediate value says.
    #[inline(always)]
    pub(crate) fn parse(
        &self,
        geometry: &Geometry,
        arrival: Arrival,
    ) -> Result<Request, ProtoError> {
        let off = to_usize(arrival.off);

        self.region
            .sync_for_cpu(0, off.wrapping_add(Request::MAX_MSG));
        let (request, written) = match self.region.pages().read_words::<WORDS>(off) {
            Some(message) => Request::parse_written(geometry, arrival.off, message.as_flattened())?,
            None => self.parse_at_end(geometry, arrival.off)?,
        };
        if written != arrival.byte_len {
            return Err(ProtoError::Length);
        }
        self.wants(arrival.cid, request.dir());
        Ok(request)
    }

    /// Less than the longest message is left at the end of the chunk.
    #[cold]
    fn parse_at_end(&self, geometry: &Geometry, off: u32) -> Result<(Request, u32), ProtoError> {
        let range = Request::msg_range(geometry, off)?;
        let mut message = [0; Request::MAX_MSG];
        let message = message.get_mut(..range.len()).ok_or(ProtoError::Length)?;

        self.region.sync_for_cpu(0, range.end);
        self.region
            .pages()
            .read(range.start, message)
            .map_err(|_| ProtoError::Offset)?;
        Request::parse_written(geometry, off, message)
    }
}

/// Widens a length; `usize` has at least 32 bits wherever there is RDMA.
fn to_usize(len: u32) -> usize {
    // CAST: See above.
    len as usize
}
