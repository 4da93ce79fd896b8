// SPDX-License-Identifier: GPL-2.0

//! The mark of a request, which says for which life of the server its message was made.
//!
//! ```text
//!    31      30      29                            0
//!   +-------+-------+-------------------------------+
//!   | fresh | shift | number of the server's life   |
//!   +-------+-------+-------------------------------+
//! ```
//!
//! The session has a present mark, and a mark for new requests. They are the same as long as the
//! user's numbers of its devices are the server's. If they differ (*shift*), a new request has the
//! *fresh* bit as well: it never has the present mark, and so is never sent without a translation.
//! A message that is sent has the present mark.

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

const FRESH: u32 = 1 << 31;
const SHIFT: u32 = 1 << 30;
const NUMBER: u32 = SHIFT - 1;

impl Epoch {
    /// The mark of a message of this module: of no life, so that it is never sent a second time.
    pub const OURS: Self = Self(u32::MAX);

    /// The mark of the first life.
    pub const FIRST: Self = Self(0);

    /// From a word.
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// As a word.
    pub const fn to_word(self) -> u32 {
        self.0
    }

    /// The present mark of the life that follows this one.
    #[must_use]
    pub const fn following(self, shifted: bool) -> Self {
        let number = match self.0.wrapping_add(1) & NUMBER {
            // With both bits it would be `OURS`.
            NUMBER => 0,
            number => number,
        };
        Self(if shifted { number | SHIFT } else { number })
    }

    /// The mark of new requests while this is the present one.
    #[must_use]
    pub const fn of_new(self) -> Self {
        if self.is_shifted() {
            Self(self.0 | FRESH)
        } else {
            self
        }
    }

    /// Whether server and user have different numbers.
    pub const fn is_shifted(self) -> bool {
        self.0 & SHIFT != 0
    }

    /// Whether the message of such a request still has the user's number, and not one that was put
    /// there for the server.
    pub const fn has_user_id(self) -> bool {
        !self.is_shifted() || self.0 & FRESH != 0
    }

    /// Whether a request with this mark is of life `oldest` or later, as seen from `present`; the
    /// numbers wrap.
    pub const fn is_since(self, oldest: Self, present: Self) -> bool {
        let age = present.0.wrapping_sub(self.0) & NUMBER;
        let limit = present.0.wrapping_sub(oldest.0) & NUMBER;
        age <= limit && self.0 != Self::OURS.0
    }
}
