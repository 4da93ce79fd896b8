// SPDX-License-Identifier: GPL-2.0

//! Violations of the protocol by a client.

use rtrs_core::proto::ProtoError;

/// A violation of the protocol.
pub(crate) enum Fault {
    /// A message that is not valid.
    Proto(ProtoError),
    /// A request for a chunk that has an unanswered request on this path.
    Busy,
    /// A message that must not come here.
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
