// SPDX-License-Identifier: GPL-2.0

//! The words of a command: `verb key=value key=value ...`.

use core::str::FromStr;
use kernel::prelude::*;

/// Maximum number of words in a command.
const MAX_WORDS: usize = 64;

/// A parsed command.
pub(crate) struct Args<'a> {
    verb: &'a str,
    pairs: KVec<(&'a str, &'a str)>,
}

impl<'a> Args<'a> {
    /// Parses `line`.
    ///
    /// # Errors
    ///
    /// `EINVAL` without a verb, or for a word that is not `key=value`.
    pub(crate) fn new(line: &'a str) -> Result<Self> {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().ok_or(EINVAL)?;
        let mut pairs = KVec::new();
        for word in words {
            if pairs.len() == MAX_WORDS {
                return Err(E2BIG);
            }
            pairs.push(word.split_once('=').ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        Ok(Self { verb, pairs })
    }

    /// The verb of the command.
    pub(crate) fn verb(&self) -> &'a str {
        self.verb
    }

    /// Refuses other keys with `EINVAL`: with a mistyped key a test would show less than it claims.
    pub(crate) fn only(&self, keys: &[&str]) -> Result {
        match self.pairs.iter().find(|(key, _)| !keys.contains(key)) {
            Some((key, _)) => {
                pr_err!("{}: no such key: {}\n", self.verb, key);
                Err(EINVAL)
            }
            None => Ok(()),
        }
    }

    /// All values of `key`.
    pub(crate) fn all<'b>(&'b self, key: &'b str) -> impl Iterator<Item = &'a str> + 'b {
        self.pairs
            .iter()
            .filter(move |(k, _)| *k == key)
            .map(|(_, value)| *value)
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, value)| *value)
    }

    /// The value of `key`, which must be there.
    pub(crate) fn need(&self, key: &str) -> Result<&'a str> {
        self.get(key).ok_or_else(|| {
            pr_err!("{}: no {}=\n", self.verb, key);
            EINVAL
        })
    }

    /// The value of `key` as a number, or `default`.
    pub(crate) fn number<T: FromStr>(&self, key: &str, default: T) -> Result<T> {
        self.get(key)
            .map_or(Ok(default), |value| value.parse().map_err(|_| EINVAL))
    }

    /// The value of `key`, which must be there, as a number.
    pub(crate) fn need_number<T: FromStr>(&self, key: &str) -> Result<T> {
        self.need(key)?.parse().map_err(|_| EINVAL)
    }

    /// Whether `key` is 1, not 0 or absent.
    pub(crate) fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(EINVAL),
        }
    }

    /// The name under which the result is filed: `tag=`, or `name=`, or the verb.
    pub(crate) fn tag(&self) -> &'a str {
        self.get("tag")
            .or_else(|| self.get("name"))
            .unwrap_or(self.verb)
    }
}
