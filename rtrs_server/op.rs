// SPDX-License-Identifier: GPL-2.0

//! A request that the user has.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::pages::Pages;
use rtrs_core::proto::{
    DataDir,
    Request, //
};

use crate::{
    chunk::{
        self,
        Home, //
    },
    path::Path, //
};

/// One chunk's request.
pub(crate) type Op = chunk::Op<Path>;

/// A request that the user has, and that waits for its answer.
///
/// It is answered exactly once: by [`Operation::respond`], or with `EIO` if it is dropped. All
/// methods are for any context.
pub struct Operation {
    /// `None` after the answer.
    op: Option<KBox<Op>>,
}

impl Operation {
    /// Makes the operation that the user gets.
    #[inline(always)]
    pub(crate) fn new(op: KBox<Op>) -> Self {
        Self { op: Some(op) }
    }

    /// Takes the operation back without an answer, for code that keeps it in another form.
    #[inline(always)]
    pub(crate) fn into_op(mut self) -> Option<KBox<Op>> {
        self.op.take()
    }

    fn request(&self) -> Option<&Request> {
        self.op.as_ref().map(|op| op.request())
    }

    /// Direction of the data, as the client sees it: a read wants data from the server.
    pub fn dir(&self) -> DataDir {
        self.request().map_or(DataDir::Read, Request::dir)
    }

    /// Length of the data in bytes.
    pub fn data_len(&self) -> usize {
        self.request().map_or(0, |r| r.data_range().len())
    }

    /// The user message: a private copy, which the client cannot change.
    pub fn usr(&self) -> &[u8] {
        self.op.as_ref().map_or(&[], |op| op.usr())
    }

    /// The memory, which starts with the data, for building a disk request.
    ///
    /// Writing more than [`Operation::data_len`] bytes is harmless, but the rest is not sent.
    pub fn pages(&self) -> Option<&Arc<Pages>> {
        Some(self.op.as_ref()?.memory())
    }

    /// Copies data of a write request from offset `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond [`Operation::data_len`].
    pub fn read_data(&self, off: usize, buf: &mut [u8]) -> Result {
        self.data_range(off, buf.len())?.read(off, buf)
    }

    /// Copies the answer's data of a read request to offset `off`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond [`Operation::data_len`].
    pub fn write_data(&self, off: usize, buf: &[u8]) -> Result {
        self.data_range(off, buf.len())?.write(off, buf)
    }

    fn data_range(&self, off: usize, len: usize) -> Result<&Arc<Pages>> {
        let end = off.checked_add(len).ok_or(EINVAL)?;
        if end > self.data_len() {
            return Err(EINVAL);
        }
        self.pages().ok_or(EINVAL)
    }

    /// Answers the request. If the path is gone meanwhile, the answer is dropped: the client sends
    /// the request again over another path.
    pub fn respond(mut self, result: Result) {
        self.finish(result.map_or_else(|e| e.to_errno(), |()| 0));
    }

    /// [`Operation::respond`] with 0 or a negative errno.
    fn finish(&mut self, errno: i32) {
        if let Some(op) = self.op.take() {
            Path::answer(op, errno);
        }
    }

    #[cold]
    fn forgotten(&mut self) {
        self.finish(EIO.to_errno());
    }
}

impl Drop for Operation {
    #[inline(always)]
    fn drop(&mut self) {
        if self.op.is_some() {
            self.forgotten();
        }
    }
}
