// SPDX-License-Identifier: GPL-2.0

//! Who may take the place of whom: paths by their identity, sessions by their name.

/// What is known about the latest life of a path that a connection request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its reconnect counter.
    pub recon_cnt: u16,
    /// How many connections its client announced.
    pub cid_num: u16,
    /// Connections can be added.
    pub open: bool,
    /// It is on its way out.
    pub closing: bool,
}

/// What to do with a connection request for a path that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It is one more connection of this life.
    Same,
    /// It begins a new life; the old one has to go, if it does not already.
    TakeOver,
    /// It is neither, or late.
    Refuse,
}

/// What a request with these numbers is to a path that is known.
///
/// A client counts its attempts. So what has the number of the latest life belongs to that or to
/// nothing; what has a lower one was delayed or is repeated by somebody, and must not end a life
/// that goes on; what has a higher one comes from a client that has given the old life up.
pub const fn join(old: Known, recon_cnt: u16, cid_num: u16) -> Join {
    if recon_cnt == old.recon_cnt {
        return if old.open && cid_num == old.cid_num {
            Join::Same
        } else {
            Join::Refuse
        };
    }
    // CAST: a distance of counters that wrap.
    let newer = recon_cnt.wrapping_sub(old.recon_cnt) as i16 > 0;
    if newer || old.closing {
        Join::TakeOver
    } else {
        Join::Refuse
    }
}

/// A session that has, or had, the name that another one's path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Both are with the same server.
    pub same_server: bool,
    /// Its user has it, with whatever its client left there.
    pub kept: bool,
    /// Its user is being told that it is gone, and has not yet said that it has heard.
    pub ending: bool,
    /// It has no path at all.
    pub deserted: bool,
    /// A path of it uses the name.
    pub claimed: bool,
    /// It has a path that is not on its way out.
    pub live: bool,
    /// It has, or had, a path from the address that the asking one comes from.
    pub same_source: bool,
    /// Its client has left, or was asked and does not answer.
    pub silent: bool,
}

/// What the holder of a name means for who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Free,
    /// It is about to go: ask again.
    Wait,
    /// Its client is to be asked whether it lives, see [`Question`].
    Ask,
    /// It has to go, as its client has lost its memory: ask again.
    End,
    /// The name stays where it is.
    Refuse,
}

/// Whether a session has to give its name to another one.
///
/// The same name from the same address may be a client that has lost its memory. It may also be
/// any other process there, or a host that pretends to be there: an address proves nothing. So a
/// session ends for it only if its client has left, or says nothing when it is asked. Nobody else
/// may end a session by using its name, also not while it waits for its client: that one would
/// find its handles gone. No user is told of a new session while it is being told of the end of the
/// old one of that name; for requests of the old one that a user still has nobody waits. Another
/// server's user knows names of its own, but has the same directory.
pub const fn held(holder: Holder) -> Held {
    let mine = holder.same_server && holder.same_source;

    if holder.claimed {
        return match (holder.live, mine) {
            (false, _) => Held::Wait,
            (true, false) => Held::Refuse,
            (true, true) if !holder.silent => Held::Ask,
            (true, true) => Held::End,
        };
    }
    if holder.ending && holder.same_server {
        return Held::Wait;
    }
    match (holder.kept && holder.same_server, mine) {
        (false, _) => Held::Free,
        (true, false) => Held::Refuse,
        (true, true) if !holder.silent => Held::Ask,
        // Not waited for while something still executes for it.
        (true, true) if !holder.deserted => Held::Free,
        (true, true) => Held::End,
    }
}

/// How long a client that lives may take to answer, in nanoseconds.
pub const PATIENCE_NS: u64 = 3_000_000_000;

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is to be put now; whatever was heard before does not count.
    Ask,
    /// There is time for an answer.
    Wait,
    /// The client lives.
    Lives,
    /// There was no answer.
    Silent,
}

/// Whether the client of a session lives. One question at a time, whoever wants to know: the
/// answer to it is anything that is heard of the client afterwards.
#[derive(Debug, Default)]
pub struct Question {
    /// When it was put, in nanoseconds of a monotonic clock.
    asked: Option<u64>,
}

impl Question {
    /// Nobody asks.
    pub const fn new() -> Self {
        Self { asked: None }
    }

    /// Somebody wants to know at `now`; `heard` is whether anything was heard since the question
    /// was put. To be called again and again, until there is an answer. A question that nobody
    /// has come back to for long is put again.
    pub fn poll(&mut self, now: u64, heard: bool) -> Verdict {
        let waited = self.asked.map(|asked| now.saturating_sub(asked));
        let verdict = match waited {
            Some(0..OLD_NS) if heard => Verdict::Lives,
            Some(0..PATIENCE_NS) => Verdict::Wait,
            Some(PATIENCE_NS..OLD_NS) => Verdict::Silent,
            _ => Verdict::Ask,
        };
        match verdict {
            Verdict::Ask => self.asked = Some(now),
            Verdict::Wait => {}
            Verdict::Lives | Verdict::Silent => self.asked = None,
        }
        verdict
    }
}

/// When nobody waits for the answer any more.
const OLD_NS: u64 = 2 * PATIENCE_NS;

/// The addresses a session's paths came from, the latest ones.
#[derive(Clone, Copy, Debug)]
pub struct Sources<A, const N: usize> {
    slots: [Option<A>; N],
    next: usize,
}

impl<A: Copy + PartialEq, const N: usize> Sources<A, N> {
    /// None.
    pub const fn new() -> Self {
        Self {
            slots: [None; N],
            next: 0,
        }
    }

    /// A path from `addr` was there. If there were too many the one that was new longest ago is
    /// forgotten.
    pub fn note(&mut self, addr: A) {
        if self.contains(addr) {
            return;
        }
        if let Some(slot) = self.slots.get_mut(self.next) {
            *slot = Some(addr);
        }
        self.next = self.next.wrapping_add(1).checked_rem(N).unwrap_or(0);
    }

    /// Whether a path from `addr` was there.
    pub fn contains(&self, addr: A) -> bool {
        self.slots.contains(&Some(addr))
    }
}

impl<A: Copy + PartialEq, const N: usize> Default for Sources<A, N> {
    fn default() -> Self {
        Self::new()
    }
}
