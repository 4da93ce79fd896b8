// SPDX-License-Identifier: GPL-2.0

//! A request, independent of its owner.
//!
//! Each permit of a session has an [`Io`]: all that is needed to send its request, and to send it
//! again over another path. The owner of the [`Turn`] may change it. Before the request is posted,
//! that is the holder of the permit. After that it is the code that has landed the request, found
//! it waiting for a path, or collected it from a link that has ended.
//!
//! This module does not know sessions, paths or links.

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
