// SPDX-License-Identifier: GPL-2.0

//! Chooses which paths or sessions have to make room for a newcomer that needs a place among the
//! handshakes, memory, connections, or a place among the sessions.

use super::source::Source;

/// What one member of a crowd has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stake<T> {
    /// Where it comes from.
    pub source: Source,
    /// When it came.
    pub came: u64,
    /// It takes too long, and goes first: of several such, the one with the lowest number.
    pub late: Option<u64>,
    /// What it has, and gives up if it gives way.
    pub amount: u64,
    /// It counts for its source, but does not give way.
    pub stays: bool,
    /// It gives way, by [`choose`].
    pub goes: bool,
    /// The member.
    pub member: T,
}

/// A newcomer that room is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The source of the newcomer.
    pub source: Source,
    /// What its source will have besides members of the crowd: what the newcomer has, and needs; 0
    /// for a place among the handshakes.
    pub own: u64,
    /// How much it needs that is not free.
    pub missing: u64,
    /// A source that has no more than this keeps it.
    pub least: u64,
    /// Members of its own source that take too long go, too.
    pub own_late: bool,
}

/// Marks the members of `crowd` that give way. Returns whether that is enough; if not, none has
/// to give way, whatever the marks say.
///
/// Members that take too long go first. Then it is, again and again, the first member of the source
/// that has most by then, provided that it still has more than the newcomer's source has, including
/// `own`; of several such sources, it is the first member of all. So one host cannot keep others
/// out by what it has, nor displace those that have less, or are slow, each from an address of its
/// own, however much it asks for.
///
/// Members of the newcomer's source do not go: clients of one host that find no room would end each
/// other, and none would get in. With `own_late` those that take too long do: for that, one that
/// goes has to be enough for the newcomer.
///
/// Changes the order. The time this takes grows with the number of members, times that of members
/// that give way.
pub fn choose<T>(crowd: &mut [Stake<T>], need: &Need) -> bool {
    sort(crowd);

    let mine = crowd.iter().filter(|one| one.source == need.source);
    let floor = need.least.max(sum(mine).saturating_add(need.own));
    let mut freed = 0u64;
    while freed < need.missing {
        let next = slowest(crowd, need).or_else(|| first_of_largest(crowd, need.source, floor));
        let Some(one) = next.and_then(|index| crowd.get_mut(index)) else {
            return false;
        };
        one.goes = true;
        freed = freed.saturating_add(one.amount);
    }
    true
}

/// Whether the members of `kept` that go, by [`choose`], do so instead of one of `handshakes`: those
/// that could go for the same reason are more.
///
/// Handshakes that take too long go before a session that is kept by right, because their clients
/// only lose time. Late sessions, that is, those that have waited longer than they were up, are
/// compared with late handshakes; handshakes in time count only beyond the first `spared` of them.
/// So `spared` newcomers at once do not end each other, and an attacker that begins more handshakes
/// than that cannot end all late sessions.
pub fn outnumbers<K, H>(kept: &[Stake<K>], handshakes: &[Stake<H>], spared: u64) -> bool {
    let Some(first) = kept.iter().find(|one| one.goes) else {
        return false;
    };
    let could_go = kept.iter().filter(|one| !one.stays);
    let slow = total(handshakes.iter().filter(|one| one.late.is_some()));
    let in_time = total(handshakes.iter()).saturating_sub(slow);

    if first.late.is_some() {
        let rivals = slow.saturating_add(in_time.saturating_sub(spared));
        total(could_go.filter(|one| one.late.is_some())) > rivals
    } else {
        slow == 0 && total(could_go.filter(|one| one.source == first.source)) > in_time
    }
}

/// Chooses again, among those of `crowd` for which `still` is true. The others have nothing to give.
/// Returns as [`choose`] does.
pub fn choose_again<T>(
    crowd: &mut [Stake<T>],
    need: &Need,
    still: impl Fn(&Stake<T>) -> bool,
) -> bool {
    for one in crowd.iter_mut() {
        one.goes = false;
        if !one.stays && !still(one) {
            one.amount = 0;
        }
    }
    choose(crowd, need)
}

/// Sorts by source, and then by time. The sort of the core library can panic if an order is not
/// total, and objtool warns of the code around that.
fn sort<T>(crowd: &mut [Stake<T>]) {
    let mut gap = crowd.len() / 2;

    while gap != 0 {
        for index in gap..crowd.len() {
            let mut at = index;
            while let Some(before) = at.checked_sub(gap) {
                let key = |index: usize| crowd.get(index).map(|one| (one.source, one.came));
                if key(before) <= key(at) {
                    break;
                }
                crowd.swap(before, at);
                at = before;
            }
        }
        gap /= 2;
    }
}

fn may_go<T>(one: &Stake<T>) -> bool {
    !one.stays && !one.goes && one.amount != 0
}

fn total<'a, T: 'a>(members: impl Iterator<Item = &'a Stake<T>>) -> u64 {
    members.fold(0, |sum, one| sum.saturating_add(one.amount))
}

fn sum<'a, T: 'a>(members: impl Iterator<Item = &'a Stake<T>>) -> u64 {
    total(members.filter(|one| !one.goes))
}

/// Returns the index of the first to go of the members that take too long.
fn slowest<T>(crowd: &[Stake<T>], need: &Need) -> Option<usize> {
    let may = |one: &Stake<T>| may_go(one) && (need.own_late || one.source != need.source);
    let members = crowd.iter().enumerate();
    members
        .filter(|(_, one)| may(one))
        .filter_map(|(index, one)| Some((one.late?, index)))
        .min()
        .map(|(_, index)| index)
}

/// Returns the index of the first member that may go, of the source that has most and more than
/// `floor`. `crowd` is in order.
fn first_of_largest<T>(crowd: &[Stake<T>], newcomer: Source, floor: u64) -> Option<usize> {
    // The largest amount, when the first of its members came, and its index.
    let mut worst: Option<(u64, u64, usize)> = None;
    let mut at = 0usize;

    for group in crowd.chunk_by(|a, b| a.source == b.source) {
        let amount = sum(group.iter());
        let others = group.first().is_some_and(|one| one.source != newcomer);
        let first = group.iter().enumerate().find(|(_, one)| may_go(one));
        if let Some((index, one)) = first.filter(|_| others && amount > floor) {
            if worst
                .is_none_or(|(most, since, _)| amount > most || amount == most && one.came < since)
            {
                worst = Some((amount, one.came, at.saturating_add(index)));
            }
        }
        at = at.saturating_add(group.len());
    }
    worst.map(|(.., index)| index)
}
