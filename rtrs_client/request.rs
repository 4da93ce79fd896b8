// SPDX-License-Identifier: GPL-2.0

//! A request, in whoever's hands it is.
//!
//! Each permit of a session has an [`Io`]: what it takes to send its request, and to send it again
//! over another path. Who has the [`Turn`] may change that: the holder of the permit before the
//! request is posted; after that whoever has landed it, found it waiting for a path, or collected it
//! from a link that has ended.
//!
//! Nothing here knows of sessions, paths or links.

mod pending;

pub use self::pending::Connection;
pub(crate) use self::pending::{
    unsent,
    Cons,
    Io,
    MessageSlot,
    Permits,
    Turn,
    Unsent, //
};
