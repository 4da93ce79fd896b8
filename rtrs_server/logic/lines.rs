// SPDX-License-Identifier: GPL-2.0

//! Lines of items that wait until an attempt with them succeeds: first in, first out.
//!
//! An item is a number, which is in at most one line, so the links of all lines are in one vector.
//! Each operation takes the same time however many items wait.
//!
//! One task at a time attempts the items of a line. So they keep their order, and a task that finds
//! another one at work only tells it that an attempt may succeed now.

use core::ops::DerefMut;

/// A line.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The first and the last item that wait.
    ends: Option<(u16, u16)>,
    /// A task attempts the items, and has one of them.
    attended: bool,
    /// An attempt may succeed that began before this was set and has failed.
    again: bool,
}

impl Line {
    /// A line without items.
    pub const EMPTY: Self = Self {
        ends: None,
        attended: false,
        again: false,
    };
}

/// The lines `L`, with links `N`, one for each item.
pub struct Lines<L, N> {
    lines: L,
    /// The item behind each item.
    behind: N,
}

impl<L, N> Lines<L, N>
where
    L: DerefMut<Target = [Line]>,
    N: DerefMut<Target = [Option<u16>]>,
{
    /// The lines must be empty.
    pub const fn new(lines: L, behind: N) -> Self {
        Self { lines, behind }
    }

    /// Adds an item, which must not be in a line, at the end of one. [`Self::attend`] has to follow.
    /// Returns `false` if there is no such line or item.
    #[must_use]
    pub fn push(&mut self, line: u16, item: u16) -> bool {
        let Some(line) = self.lines.get_mut(usize::from(line)) else {
            return false;
        };
        let Some(behind) = self.behind.get_mut(usize::from(item)) else {
            return false;
        };

        *behind = None;
        let first = match line.ends {
            None => item,
            Some((first, last)) => {
                if let Some(behind) = self.behind.get_mut(usize::from(last)) {
                    *behind = Some(item);
                }
                first
            }
        };
        line.ends = Some((first, item));
        true
    }

    /// An attempt may succeed now. Returns the first item, which is out of the line then: it has to
    /// be attempted, and [`Self::succeeded`] or [`Self::failed`] has to follow. Returns `None` if
    /// nothing waits, or if another task attempts the items: its attempt does not fail for good if
    /// it began before.
    pub fn attend(&mut self, line: u16) -> Option<u16> {
        let line = self.lines.get_mut(usize::from(line))?;

        if line.attended {
            line.again = true;
            return None;
        }
        Self::take_first(line, &self.behind)
    }

    /// The attempt was successful, or there is nothing to attempt any more. Returns the next item,
    /// as [`Self::attend`] does.
    pub fn succeeded(&mut self, line: u16) -> Option<u16> {
        let line = self.lines.get_mut(usize::from(line))?;

        Self::take_first(line, &self.behind)
    }

    /// The attempt has failed. Returns `true` if it has to be repeated at once. Otherwise the item
    /// is the first of its line again.
    #[must_use]
    pub fn failed(&mut self, line: u16, item: u16) -> bool {
        let Some(line) = self.lines.get_mut(usize::from(line)) else {
            return false;
        };
        let Some(behind) = self.behind.get_mut(usize::from(item)) else {
            return false;
        };

        if line.again {
            line.again = false;
            return true;
        }
        let (next, last) = match line.ends {
            None => (None, item),
            Some((first, last)) => (Some(first), last),
        };
        *behind = next;
        line.ends = Some((item, last));
        line.attended = false;
        false
    }

    fn take_first(line: &mut Line, behind: &[Option<u16>]) -> Option<u16> {
        let first = line.ends.map(|(first, _)| first);

        line.ends = line.ends.and_then(|(first, last)| {
            let next = behind.get(usize::from(first)).copied().flatten();
            next.map(|next| (next, last))
        });
        // An attempt that begins now sees all that was told before.
        line.again = false;
        line.attended = first.is_some();
        first
    }
}
