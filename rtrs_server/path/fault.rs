// SPDX-License-Identifier: GPL-2.0

//! What a client did wrong.

use rtrs_core::proto::ProtoError;

/// What a client did wrong.
pub(crate) enum Fault {
    /// A message that is not valid.
    Proto(ProtoError),
    /// A request for a chunk whose request on this path is not answered yet.
    Busy,
    /// Something that has no place here.
    Unexpected(&'static str),
}

impl From<ProtoError> for Fault {
    fn from(e: ProtoError) -> Self {
        Self::Proto(e)
    }
}

impl Fault {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Proto(e) => e.as_str(),
            Self::Busy => "request for a chunk in use",
            Self::Unexpected(what) => what,
        }
    }
}
