// SPDX-License-Identifier: GPL-2.0

//! Decides which path or session may replace another one: paths by their identity, sessions by
//! their name.

/// The latest life of a path that a connection request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its reconnect counter.
    pub recon_cnt: u16,
    /// Number of connections its client announced.
    pub cid_num: u16,
    /// Connections can be added.
    pub open: bool,
    /// It is closing.
    pub closing: bool,
}

/// The decision on a connection request for a known path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It is one more connection of this life.
    Same,
    /// It begins a new life; the old one has to be closed, unless it is closing already.
    TakeOver,
    /// It is neither of the two, or late.
    Refuse,
}

/// How far a client's number may be ahead of that of a life that goes on. A client has not made
/// more attempts by the time at which the server has noticed that they do not arrive.
pub const MAX_AHEAD: u16 = 256;

/// Decides whether a request with these numbers belongs to a known path, or replaces its life.
///
/// A client counts its attempts. A request with the number of the latest life belongs to that life
/// or is refused. A request with a lower number was delayed or is a replay, and must not end a life
/// that goes on. A request with a higher number comes from a client that has given the old life up.
/// One that is more than [`MAX_AHEAD`] higher does not: no client has counted that far unheard, and
/// all numbers below it would be late then. A host that knows both identities can go on from number
/// to number; it could end the path in any case.
pub const fn join(old: Known, recon_cnt: u16, cid_num: u16) -> Join {
    if recon_cnt == old.recon_cnt {
        return if old.open && cid_num == old.cid_num {
            Join::Same
        } else {
            Join::Refuse
        };
    }
    // The distance of two counters that wrap, which are not the same.
    let newer = recon_cnt.wrapping_sub(old.recon_cnt) <= MAX_AHEAD;
    if newer || old.closing {
        Join::TakeOver
    } else {
        Join::Refuse
    }
}

/// A session that has, or had, the name that a path of another session asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Both are with the same server.
    pub same_server: bool,
    /// Its user has it, with the state its client left there.
    pub kept: bool,
    /// Its user is being told that it is gone, and has not yet returned from that call.
    pub ending: bool,
    /// A path of it uses the name.
    pub claimed: bool,
    /// It has a path that is not closing.
    pub live: bool,
    /// It has, or had, a path from an address that a path of the session that asks comes from.
    pub same_source: bool,
    /// It has given its name to another session before, and has had no path since.
    pub given_up: bool,
    /// The path that asks has not waited for others of its session yet, see [`SIBLINGS_NS`].
    pub early: bool,
    /// Its client has left, or was asked and did not answer.
    pub silent: bool,
}

/// The decision on a name that another session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The name is not in use.
    Free,
    /// The holder is about to go: ask again.
    Wait,
    /// The holder keeps the name, unless another path of the session that asks comes from an
    /// address that the holder knows: ask again, but not soon.
    WaitForSiblings,
    /// Its client has to be asked whether it lives, see [`Question`].
    Ask,
    /// It has to end, as its client has lost its state: ask again.
    End,
    /// The holder keeps the name.
    Refuse,
}

/// Decides whether a session has to give its name to another one.
///
/// A session with the same name from the same address may belong to a client that has lost its
/// state. It may also belong to any other process there, or to a host that forges that address: an
/// address proves nothing. So the old session ends only if its client has left, or does not answer
/// when it is asked. No other client can end a session by using its name, not even while that
/// session waits for its client, which would find its handles gone. A user never has two sessions
/// of one name: a new one waits until the user was told of the end of the old one, which waits for
/// the requests that the user still has. (RNBD's server makes a directory of that name for each
/// device of a session, and waits for itself for ever if there is one.) Another server's user has
/// names of its own, but they share one directory.
///
/// The paths of a client arrive in any order, and the old session may have had fewer. So a path
/// from an address that the old session does not know waits a moment for one from an address that
/// it does.
pub const fn held(holder: Holder) -> Held {
    let mine = holder.same_server && (holder.same_source || holder.given_up);
    let refuse = match holder.same_server && holder.early {
        true => Held::WaitForSiblings,
        false => Held::Refuse,
    };

    if holder.claimed {
        return match (holder.live, mine) {
            (false, _) => Held::Wait,
            (true, false) => refuse,
            (true, true) if !holder.silent => Held::Ask,
            (true, true) => Held::End,
        };
    }
    if holder.ending && holder.same_server {
        return Held::Wait;
    }
    match (holder.kept && holder.same_server, mine) {
        (false, _) => Held::Free,
        (true, false) => refuse,
        (true, true) if !holder.silent => Held::Ask,
        // A client that began to come back is as silent as one that did not.
        (true, true) => Held::End,
    }
}

/// Interval, in milliseconds, at which a path checks whether an object in its way is gone.
pub const RETRY_MS: u32 = 10;

/// How long an object in the way of a path is expected to take until it is gone, in nanoseconds.
const MOMENT_NS: u64 = 1_000_000_000;

/// How long a path waits for others of its session, in nanoseconds.
pub const SIBLINGS_NS: u64 = 1_000_000_000;

/// The time within which a live client has to answer, in nanoseconds.
pub const PATIENCE_NS: u64 = 3_000_000_000;

/// The time after which a question is sent again, in nanoseconds: one message may be lost, and a
/// device may take longer than [`PATIENCE_NS`] to repeat it.
pub const REPEAT_NS: u64 = 1_000_000_000;

/// The longest time between two polls of a question, in nanoseconds. If it is longer, the server
/// has not listened meanwhile, and nothing follows from the silence.
pub const GAP_NS: u64 = 1_000_000_000;

/// The shortest time between two looks at the answer, in nanoseconds. Each is a look at all
/// connections of the session, with locks held, and there may be any number of clients that ask: in
/// between they share what was found.
pub const LOOK_NS: u64 = 50_000_000;

/// The time after which a question is not waited for any more.
const OLD_NS: u64 = 2 * PATIENCE_NS;

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The question has to be sent now; messages heard before do not count.
    Ask,
    /// The question has to be sent once more; messages heard since it was sent first count.
    AskAgain,
    /// There is still time for an answer.
    Wait,
    /// The client lives.
    Lives,
    /// There was no answer.
    Silent,
}

/// Whether the client of a session lives. There is one question at a time for all that ask. Any
/// message of the client that comes afterwards is an answer.
#[derive(Debug, Default)]
pub struct Question {
    open: Option<Open>,
    /// When it was polled last, and whether the client lives.
    looked: Option<(u64, bool)>,
}

/// A question without an answer. Times are in nanoseconds of a monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// When it was sent first.
    asked: u64,
    /// When it was sent last.
    sent: u64,
    /// When it was polled last.
    polled: u64,
}

impl Question {
    /// No question.
    pub const fn new() -> Self {
        Self {
            open: None,
            looked: None,
        }
    }

    /// The verdict of a [poll](Self::poll) just before `now`, for other clients that ask. `None` if
    /// it is time to poll.
    pub fn recent(&self, now: u64) -> Option<Verdict> {
        match self.looked {
            Some((at, lives)) if now.saturating_sub(at) < LOOK_NS => match lives {
                true => Some(Verdict::Lives),
                false => Some(Verdict::Wait),
            },
            _ => None,
        }
    }

    /// Asks at `now`; `heard` is whether anything was heard since the question was sent. The caller
    /// has to repeat this until there is an answer. A question that was not polled for long is put
    /// anew: a machine that stands still hears nothing.
    pub fn poll(&mut self, now: u64, heard: bool) -> Verdict {
        let verdict = match &self.open {
            None => Verdict::Ask,
            Some(open) => open.verdict(now, heard),
        };
        self.looked = Some((now, verdict == Verdict::Lives));
        match (verdict, &mut self.open) {
            (Verdict::Lives | Verdict::Silent, open) => *open = None,
            (Verdict::Ask, open) => {
                *open = Some(Open {
                    asked: now,
                    sent: now,
                    polled: now,
                });
            }
            (_, Some(open)) => {
                open.polled = now;
                if verdict == Verdict::AskAgain {
                    open.sent = now;
                }
            }
            (_, None) => {}
        }
        verdict
    }
}

impl Open {
    fn verdict(&self, now: u64, heard: bool) -> Verdict {
        let waited = now.saturating_sub(self.asked);

        if heard && waited < OLD_NS {
            Verdict::Lives
        } else if now.saturating_sub(self.polled) > GAP_NS {
            Verdict::Ask
        } else if waited >= PATIENCE_NS {
            Verdict::Silent
        } else if now.saturating_sub(self.sent) >= REPEAT_NS {
            Verdict::AskAgain
        } else {
            Verdict::Wait
        }
    }
}

/// The latest addresses a session's paths came from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<A, const N: usize> {
    slots: [Option<A>; N],
    next: usize,
}

impl<A: Copy + PartialEq, const N: usize> Sources<A, N> {
    /// No addresses.
    pub const fn new() -> Self {
        Self {
            slots: [None; N],
            next: 0,
        }
    }

    /// Notes that there was a path from `addr`. If there is no room, the address that was added
    /// first is forgotten.
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

    /// Whether both have an address in common.
    pub fn meet(&self, other: &Self) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|&addr| other.contains(addr))
    }
}

impl<A: Copy + PartialEq, const N: usize> Default for Sources<A, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The answer to a session that asks for a name. If several hold it, the latest of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The session has the name.
    Granted,
    /// The old owner of the name is about to go.
    Wait,
    /// The client of the old owner is asked whether it lives.
    WaitForAnswer,
    /// Another path of the session may have a right to the name.
    WaitForSiblings,
    /// Another session has it, or this session has another name.
    Refused,
}

impl Claim {
    /// After how many milliseconds the session asks again, if it first asked `waited_ns`
    /// nanoseconds ago. `None` if it does not have to.
    ///
    /// Each time it looks at the names of all sessions. The old owner is mostly gone in a moment,
    /// but its user may take as long as it likes. The two other waits take seconds. A client can
    /// cause all of them without a right to the name.
    pub const fn retry_ms(self, waited_ns: u64) -> Option<u32> {
        match self {
            Self::Wait if waited_ns < MOMENT_NS => Some(RETRY_MS),
            Self::Wait => Some(100),
            Self::WaitForAnswer => Some(100),
            Self::WaitForSiblings => Some(200),
            Self::Granted | Self::Refused => None,
        }
    }

    /// How the path counts that got this answer, if it first asked `waited_ns` nanoseconds ago, when
    /// there is no room for all handshakes. Whatever makes it wait, it does not count as finished
    /// for long: a client can have the name of any session, and so wait for it.
    pub const fn standing(self, waited_ns: u64) -> Standing {
        match self {
            Self::Granted | Self::Refused => Standing::Finished,
            Self::Wait | Self::WaitForAnswer if waited_ns < ANSWERED_NS => Standing::Finished,
            Self::Wait | Self::WaitForAnswer => Standing::Unfinished,
            Self::WaitForSiblings => Standing::Excused,
        }
    }
}

/// The time after which a name that was waited for is expected to be free, in nanoseconds.
const ANSWERED_NS: u64 = PATIENCE_NS + 2 * MOMENT_NS;

/// The standing of a path in its handshake among others, when there is no room for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Standing {
    /// Its client has to go on: the path gives way in the order in which paths came.
    Unfinished = 0,
    /// The same, but it takes too long only [`SIBLINGS_NS`] later.
    Excused = 1,
    /// Its client waits for the server: it is the last to give way.
    Finished = 2,
}

impl Standing {
    /// The standing with this discriminant; [`Standing::Unfinished`] for others.
    pub const fn from_u32(value: u32) -> Self {
        match value {
            1 => Self::Excused,
            2 => Self::Finished,
            _ => Self::Unfinished,
        }
    }

    /// The place in the order in which paths give way, of a path that has to have finished its
    /// handshake at `deadline`: the lowest is the first to go.
    pub const fn rank(self, deadline: u64) -> u64 {
        match self {
            Self::Unfinished | Self::Excused => deadline,
            Self::Finished => u64::MAX,
        }
    }

    /// The same for the time at which it begins to take too long.
    pub const fn rank_of_lateness(self, deadline: u64) -> u64 {
        match self {
            Self::Unfinished => deadline,
            Self::Excused => deadline.saturating_add(SIBLINGS_NS),
            Self::Finished => u64::MAX,
        }
    }
}
