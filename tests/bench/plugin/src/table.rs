// SPDX-License-Identifier: GPL-2.0

//! Which vCPU wrote to which cache line, by which instruction: a table that all vCPUs fill at the
//! same time, without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of vCPUs.
pub const VCPUS: usize = 16;
/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Places that are tried for a key.
const TRIES: usize = 64;

/// Pieces of code that are told apart for one line. Stacks and the scheduler's data have many more,
/// which count as [`Code::OTHER`].
const CODES: u32 = 128;

/// A piece of code that writes: the low halves of addresses, which kernel code needs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    /// The instruction.
    pub at: u32,
    /// The block of a module that called it, for code outside of modules; 0 if none did.
    pub via: u32,
}

impl Code {
    /// All that has no entry of its own.
    pub const OTHER: Self = Self { at: 0, via: 0 };
}

/// What was written to a line by one piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first address of the line.
    pub line: u64,
    /// The code that wrote.
    pub code: Code,
    /// Writes, by vCPU.
    pub counts: [u32; VCPUS],
    /// Writes after which the line was another vCPU's than before.
    pub moves: u32,
    /// The bytes at which writes began, a bit for each.
    pub bytes: u64,
}

/// A key of 0 is a free cell. The first task to set the key writes line and code.
#[derive(Default)]
struct Cell {
    key: AtomicU64,
    line: AtomicU64,
    code: AtomicU64,
    counts: [AtomicU32; VCPUS],
    moves: AtomicU32,
    bytes: AtomicU64,
}

/// The vCPU that wrote last, plus one; the key is the line's address.
#[derive(Default)]
struct Owner {
    line: AtomicU64,
    last: AtomicU32,
    /// The number of its cells.
    codes: AtomicU32,
}

/// The table.
pub struct Table {
    cells: Vec<Cell>,
    owners: Vec<Owner>,
    /// Writes for which there was no place.
    lost: AtomicU64,
}

/// A number that depends on all bits of `n`, and is not 0.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 32)) | 1
}

/// The places of a key in a table of `len` places.
fn places(key: u64, len: usize) -> impl Iterator<Item = usize> {
    // CAST: The result is less than `len`.
    let first = ((key >> 1) % len as u64) as usize;
    (0..TRIES).map(move |n| (first + n) % len)
}

/// Whether `word` is `key`, or was 0 and is now.
fn is_or_becomes(word: &AtomicU64, key: u64) -> Option<bool> {
    match word.load(Ordering::Acquire) {
        0 => match word.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(true),
            Err(found) => (found == key).then_some(false),
        },
        found => (found == key).then_some(false),
    }
}

impl Table {
    /// A table with room for `cells` pairs of a line and a piece of code.
    pub fn new(cells: usize) -> Self {
        Self {
            cells: (0..cells).map(|_| Cell::default()).collect(),
            owners: (0..cells).map(|_| Owner::default()).collect(),
            lost: AtomicU64::new(0),
        }
    }

    /// Notes a write, with `all` in any case, otherwise only to a line to which a write was noted
    /// already. Any number of tasks may do so at the same time.
    pub fn wrote(&self, vcpu: usize, address: u64, code: Code, all: bool) {
        let line = address & !(LINE - 1);
        let owner = match all {
            true => self.owner(line),
            false => match self.known(line) {
                Some(owner) => Some(owner),
                None => return,
            },
        };
        let found = owner.and_then(|owner| Some((owner, self.cell(owner, line, code)?)));
        let Some((owner, cell)) = found.filter(|_| vcpu < VCPUS) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let count = &cell.counts[vcpu];
        count.fetch_add(1, Ordering::Relaxed);
        let bit = 1 << (address & (LINE - 1));
        if cell.bytes.load(Ordering::Relaxed) & bit == 0 {
            cell.bytes.fetch_or(bit, Ordering::Relaxed);
        }
        // CAST: Less than `VCPUS`.
        let me = vcpu as u32 + 1;
        if owner.last.load(Ordering::Relaxed) != me {
            let before = owner.last.swap(me, Ordering::Relaxed);
            if before != 0 && before != me {
                cell.moves.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn cell(&self, owner: &Owner, line: u64, code: Code) -> Option<&Cell> {
        let word = u64::from(code.at) << 32 | u64::from(code.via);
        let key = mix(line ^ mix(word));
        for place in places(key, self.cells.len()) {
            let cell = &self.cells[place];
            let found = cell.key.load(Ordering::Acquire);
            if found == 0 && code != Code::OTHER && owner.codes.load(Ordering::Relaxed) >= CODES {
                return self.cell(owner, line, Code::OTHER);
            }
            match is_or_becomes(&cell.key, key) {
                Some(new) => {
                    if new {
                        owner.codes.fetch_add(1, Ordering::Relaxed);
                        cell.line.store(line, Ordering::Relaxed);
                        cell.code.store(word, Ordering::Relaxed);
                    }
                    return Some(cell);
                }
                None => continue,
            }
        }
        None
    }

    fn owner(&self, line: u64) -> Option<&Owner> {
        places(mix(line), self.owners.len())
            .map(|place| &self.owners[place])
            .find(|owner| is_or_becomes(&owner.line, line).is_some())
    }

    fn known(&self, line: u64) -> Option<&Owner> {
        for place in places(mix(line), self.owners.len()) {
            let owner = &self.owners[place];
            match owner.line.load(Ordering::Acquire) {
                0 => return None,
                found if found == line => return Some(owner),
                _ => continue,
            }
        }
        None
    }

    /// Takes out what was noted, sorted by line and code, and the number of lost writes. The table
    /// is empty afterwards. No thread may note writes meanwhile, but for a few that then count too
    /// late.
    pub fn take(&self) -> (Vec<Entry>, u64) {
        let mut entries = Vec::new();
        for cell in &self.cells {
            if cell.key.load(Ordering::Acquire) == 0 {
                continue;
            }
            let code = cell.code.load(Ordering::Relaxed);
            let counts: [u32; VCPUS] =
                std::array::from_fn(|n| cell.counts[n].swap(0, Ordering::Relaxed));
            let entry = Entry {
                line: cell.line.load(Ordering::Relaxed),
                code: Code {
                    // CAST: The halves of the word.
                    at: (code >> 32) as u32,
                    via: code as u32,
                },
                counts,
                moves: cell.moves.swap(0, Ordering::Relaxed),
                bytes: cell.bytes.swap(0, Ordering::Relaxed),
            };
            cell.key.store(0, Ordering::Release);
            if entry.line != 0 && entry.counts.iter().any(|n| *n > 0) {
                entries.push(entry);
            }
        }
        for owner in &self.owners {
            owner.last.store(0, Ordering::Relaxed);
            owner.codes.store(0, Ordering::Relaxed);
            owner.line.store(0, Ordering::Release);
        }
        entries.sort_by_key(|e| (e.line, e.code));
        (entries, self.lost.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Code = Code { at: 1, via: 0 };
    const B: Code = Code { at: 2, via: 7 };

    #[test]
    fn a_line_moves_when_another_vcpu_writes() {
        let table = Table::new(128);
        for (vcpu, address, code) in [
            (0, 0x1000, A),
            (0, 0x1008, A),
            (1, 0x103f, B),
            (0, 0x1000, A),
        ] {
            table.wrote(vcpu, address, code, true);
        }
        table.wrote(3, 0x1040, A, true);
        // Lines to which only such code writes are of no interest.
        table.wrote(3, 0x1080, A, false);
        let (entries, lost) = table.take();
        assert_eq!(lost, 0);
        let got: Vec<_> = entries
            .iter()
            .map(|e| (e.line, e.code, e.counts[0], e.counts[1], e.moves, e.bytes))
            .collect();
        assert_eq!(
            got,
            [
                (0x1000, A, 3, 0, 1, 0x101),
                (0x1000, B, 0, 1, 1, 1 << 63),
                (0x1040, A, 0, 0, 0, 1),
            ]
        );
        assert_eq!(entries[2].counts[3], 1);
        table.wrote(0, 0x1040, A, true);
        table.wrote(1, 0x1040, B, false);
        assert_eq!(table.take().0.len(), 2);
        assert_eq!(table.take(), (Vec::new(), 0));
    }

    #[test]
    fn what_has_no_place_is_counted() {
        let table = Table::new(4);
        for n in 0..5 {
            table.wrote(0, n * LINE + 0x1000, A, true);
        }
        table.wrote(VCPUS, 0x1000, A, true);
        let (entries, lost) = table.take();
        assert_eq!((entries.len(), lost), (4, 2));
    }

    #[test]
    fn a_line_has_few_codes() {
        let table = Table::new(1 << 10);
        for at in 1..=CODES + 2 {
            table.wrote(0, 0x1000, Code { at, via: 0 }, true);
        }
        table.wrote(0, 0x1000, A, true);
        let (entries, lost) = table.take();
        assert_eq!((entries.len(), lost), (CODES as usize + 1, 0));
        assert_eq!((entries[0].code, entries[0].counts[0]), (Code::OTHER, 2));
        assert_eq!((entries[1].code, entries[1].counts[0]), (A, 2));
    }

    #[test]
    fn all_write_at_once() {
        const ROUNDS: u32 = 20_000;
        let table = Table::new(1 << 10);
        std::thread::scope(|scope| {
            for vcpu in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for n in 0..ROUNDS {
                        let line = u64::from(n % 50) * LINE + 0x1000;
                        table.wrote(vcpu, line, if n % 2 == 0 { A } else { B }, true);
                    }
                });
            }
        });
        let (entries, lost) = table.take();
        assert_eq!(lost, 0);
        // Each line has an even or an odd number, so one piece of code writes it.
        assert_eq!(entries.len(), 50);
        for entry in entries {
            assert_eq!(entry.counts[..4], [ROUNDS / 50; 4]);
            assert_eq!(entry.counts[4..], [0; VCPUS - 4]);
        }
    }
}
