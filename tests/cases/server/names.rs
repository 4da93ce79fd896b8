// SPDX-License-Identifier: GPL-2.0

//! Which session has to give its name to another one, and whether a client lives.

use rtrs_server::logic::admission::{
    held, Claim, Held, Holder, Question, Standing, Verdict, GAP_NS, LOOK_NS, PATIENCE_NS,
    REPEAT_NS, RETRY_MS,
};

/// All possible holders of a name.
fn holders() -> impl Iterator<Item = Holder> {
    (0u16..512).map(|bits| Holder {
        same_server: bits & 1 != 0,
        kept: bits & 2 != 0,
        claimed: bits & 4 != 0,
        live: bits & 8 != 0,
        same_source: bits & 16 != 0,
        ending: bits & 32 != 0,
        silent: bits & 64 != 0,
        early: bits & 128 != 0,
        given_up: bits & 256 != 0,
    })
}

fn who_gives_up_a_name() {
    for holder in holders() {
        let fate = held(holder);
        let same_source = holder.same_source || holder.given_up;
        // A session is ended only by a client from the same source, and only when it is silent. One
        // that was ended by such a client once is open to all.
        if fate == Held::End {
            assert!(same_source && holder.same_server, "{holder:?}");
            assert!(holder.silent, "{holder:?}");
        }
        // A session is probed only when needed.
        if fate == Held::Ask {
            assert!(same_source && holder.same_server, "{holder:?}");
            assert!(!holder.silent, "{holder:?}");
        }
        // A session that the user still has yields its name only to the same source.
        if holder.kept && holder.same_server && !same_source {
            let keeps = matches!(fate, Held::Refuse | Held::Wait | Held::WaitForSiblings);
            assert!(keeps, "{holder:?}");
        }
        // A name is never used twice at the same time.
        if holder.claimed {
            assert_ne!(fate, Held::Free, "{holder:?}");
        }
        if holder.claimed && holder.live && !(same_source && holder.same_server) {
            // A path may know its session's other addresses in a moment.
            let wanted = match holder.early && holder.same_server {
                true => Held::WaitForSiblings,
                false => Held::Refuse,
            };
            assert_eq!(fate, wanted, "{holder:?}");
        }
        // To wait for other paths makes no difference to a session that has such a path.
        if same_source {
            let late = Holder {
                early: !holder.early,
                ..holder
            };
            if holder.same_server {
                assert_eq!(fate, held(late), "{holder:?}");
            }
        }
        // A user never hears of a new session before it has heard of the end of the old one, which
        // comes after the answers to all its requests.
        if (holder.kept || holder.ending) && holder.same_server {
            assert_ne!(fate, Held::Free, "{holder:?}");
        }
        // The session of a client that is gone ends when it is back, also if it had begun to come
        // back before.
        if same_source && holder.silent && !holder.claimed && !holder.ending {
            let wanted = match holder.kept && holder.same_server {
                false => Held::Free,
                true => Held::End,
            };
            assert_eq!(fate, wanted, "{holder:?}");
        }
    }
}

/// The client has left.
const GONE: Holder = Holder {
    same_server: true,
    kept: false,
    ending: false,
    claimed: false,
    live: false,
    same_source: false,
    silent: true,
    early: false,
    given_up: false,
};

fn a_name_that_is_kept() {
    let kept = Holder { kept: true, ..GONE };
    assert_eq!(held(kept), Held::Refuse);
    let back = Holder {
        same_source: true,
        ..kept
    };
    assert_eq!(held(back), Held::End);
    // The session has lost its last path, and the client may be about to return.
    let lost = Holder {
        silent: false,
        ..back
    };
    assert_eq!(held(lost), Held::Ask);
    // Its requests still execute, but it was given up for another session, which comes back from
    // an address that this one did not know.
    let given_up = Holder {
        given_up: true,
        ..kept
    };
    assert_eq!(held(given_up), Held::End);
    let elsewhere = Holder {
        same_server: false,
        ..kept
    };
    assert_eq!(held(elsewhere), Held::Free);
}

/// Polls every 10 ms from `now` until there is a verdict; returns it, its time, and the times at
/// which the question was sent.
fn listen(
    question: &mut Question,
    mut now: u64,
    heard_at: Option<u64>,
) -> (Verdict, u64, [Option<u64>; 3]) {
    let mut sent = [None; 3];
    loop {
        let heard = heard_at.is_some_and(|at| at <= now);
        match question.poll(now, heard) {
            Verdict::Ask | Verdict::AskAgain => match sent.iter_mut().find(|at| at.is_none()) {
                Some(free) => *free = Some(now),
                None => fail!("asked too often"),
            },
            Verdict::Wait => {}
            verdict => return (verdict, now, sent),
        }
        now += POLL_NS;
    }
}

const POLL_NS: u64 = 10_000_000;

fn a_holder_that_lives_is_believed() {
    let mut question = Question::new();
    // Messages before the question do not count.
    assert_eq!(question.poll(100, true), Verdict::Ask);
    // An answer in the last moment counts.
    let last = 100 + PATIENCE_NS - POLL_NS;
    let (verdict, now, _) = listen(&mut question, 100, Some(last));
    assert_eq!((verdict, now), (Verdict::Lives, last));
    // The next client asks again.
    assert_eq!(question.poll(now, true), Verdict::Ask);
    let (verdict, end, _) = listen(&mut question, now, Some(now + PATIENCE_NS));
    assert_eq!((verdict, end), (Verdict::Lives, now + PATIENCE_NS));
}

fn a_holder_that_is_silent_is_given_up() {
    let mut question = Question::new();
    let (verdict, now, sent) = listen(&mut question, 0, None);
    assert_eq!((verdict, now), (Verdict::Silent, PATIENCE_NS));
    // One message may be lost.
    assert_eq!(sent, [0, REPEAT_NS, 2 * REPEAT_NS].map(Some));
    assert_eq!(question.poll(now, false), Verdict::Ask);
}

/// A machine that stands still hears nothing.
fn who_does_not_listen_learns_nothing() {
    for gap in [
        GAP_NS + 1,
        PATIENCE_NS,
        2 * PATIENCE_NS - POLL_NS,
        100 * PATIENCE_NS,
    ] {
        for before in [0, PATIENCE_NS / 2] {
            let mut question = Question::new();
            let mut now = 0;
            while now <= before {
                let _ = question.poll(now, false);
                now += POLL_NS;
            }
            now += gap - POLL_NS;
            assert_eq!(question.poll(now, false), Verdict::Ask, "{gap} {before}");
            let (verdict, end, _) = listen(&mut question, now, None);
            assert_eq!((verdict, end), (Verdict::Silent, now + PATIENCE_NS));
        }
    }
    // What has come meanwhile is an answer nevertheless.
    let mut question = Question::new();
    assert_eq!(question.poll(0, false), Verdict::Ask);
    assert_eq!(question.poll(PATIENCE_NS, true), Verdict::Lives);
    // A short pause is none.
    let mut question = Question::new();
    let polls = (0..4).map(|n| question.poll(n * GAP_NS, false));
    assert_eq!(polls.last(), Some(Verdict::Silent));
}

/// Messages since an old question may be old as well.
fn an_old_question_is_put_again() {
    for heard in [false, true] {
        let mut question = Question::new();
        assert_eq!(question.poll(100, true), Verdict::Ask);
        assert_eq!(question.poll(100 + 2 * PATIENCE_NS, heard), Verdict::Ask);
        assert_eq!(question.poll(101 + 2 * PATIENCE_NS, false), Verdict::Wait);
    }
}

fn a_name_whose_session_is_ending() {
    let ending = Holder {
        ending: true,
        ..GONE
    };
    // The source makes no difference: the user has not finished with the session.
    assert_eq!(held(ending), Held::Wait);
    let back = Holder {
        same_source: true,
        ..ending
    };
    assert_eq!(held(back), Held::Wait);
    let told = Holder {
        ending: false,
        ..ending
    };
    assert_eq!(held(told), Held::Free);
    // The other server's user never knew the session.
    let elsewhere = Holder {
        same_server: false,
        ..ending
    };
    assert_eq!(held(elsewhere), Held::Free);
    // The client came back meanwhile, and has the name again.
    let again = Holder {
        claimed: true,
        live: true,
        ..ending
    };
    assert_eq!(held(again), Held::Refuse);
}

fn the_longest_wait_counts() {
    assert_eq!(Claim::Granted.max(Claim::Wait), Claim::Wait);
    for (less, more) in [
        (Claim::Wait, Claim::WaitForAnswer),
        (Claim::WaitForAnswer, Claim::WaitForSiblings),
    ] {
        assert_eq!(less.max(more), more);
        assert!(less.retry_ms(0) < more.retry_ms(0));
    }
    assert_eq!(Claim::Granted.retry_ms(0), None);
    assert_eq!(Claim::Refused.retry_ms(0), None);
}

fn a_wait_that_lasts_is_polled_seldom() {
    let at_first = must!(Claim::Wait.retry_ms(0));
    assert_eq!(at_first, RETRY_MS);
    // A user may take until the end of the handshake, and longer.
    for waited_ns in [PATIENCE_NS, u64::MAX] {
        for claim in [Claim::Wait, Claim::WaitForAnswer, Claim::WaitForSiblings] {
            assert!(must!(claim.retry_ms(waited_ns)) >= 10 * at_first);
        }
    }
}

fn a_question_is_polled_seldom_and_often_enough() {
    let every = must!(Claim::WaitForAnswer.retry_ms(0));
    // A look at all names each time.
    assert!(every >= 10 * RETRY_MS);
    let every = u64::from(every) * 1_000_000;
    // A gap puts the question anew.
    assert!(every < GAP_NS / 2);
    let (mut question, mut now, mut polls) = (Question::new(), 0, 1);
    while question.poll(now, false) != Verdict::Silent {
        now += every;
        polls += 1;
    }
    // The newcomer gets in.
    assert!(now <= PATIENCE_NS + PATIENCE_NS / 20);
    assert!(polls <= 31);
}

/// Any client can ask for a name that another one has. It must not shield its handshakes by that.
fn who_waits_for_a_name_gives_way() {
    const NOW: u64 = 100 * PATIENCE_NS;
    let waits = [Claim::Wait, Claim::WaitForAnswer, Claim::WaitForSiblings];
    for claim in waits {
        let standing = claim.standing(2 * PATIENCE_NS);
        assert_eq!(standing.rank(NOW), NOW, "{claim:?}");
    }
    // A second is short, but with enough of them all places are taken: they go in the order in
    // which they came, like those that have not asked.
    let siblings = Claim::WaitForSiblings.standing(0);
    assert_eq!(siblings.rank(NOW), Standing::Unfinished.rank(NOW));
    assert!(siblings.rank_of_lateness(NOW) > Standing::Unfinished.rank_of_lateness(NOW));
    // A client that comes back after a crash is not in the way of others.
    for claim in [Claim::Granted, Claim::Wait, Claim::WaitForAnswer] {
        let standing = claim.standing(PATIENCE_NS + PATIENCE_NS / 20);
        assert_eq!(standing, Standing::Finished, "{claim:?}");
        assert_eq!(standing.rank(NOW), u64::MAX);
    }
    for standing in [Standing::Unfinished, Standing::Excused, Standing::Finished] {
        assert_eq!(Standing::from_u32(standing as u32), standing);
    }
}

/// However many ask, the connections of a session are looked at seldom, and all learn soon whether
/// its client lives.
fn a_crowd_that_asks_is_one() {
    // Each asks this often, until it is refused.
    const EVERY: u64 = 100_000_000;
    for crowd in [2u16, 16, 256] {
        for lives in [false, true] {
            let (mut question, mut told) = (Question::new(), [false; 256]);
            let (mut looks, mut refused, mut now) = (0, 0, 0);
            let end = if lives { PATIENCE_NS / 2 } else { PATIENCE_NS };
            let silent = 'all: loop {
                for told in told.iter_mut().take(usize::from(crowd)) {
                    now += EVERY / u64::from(crowd);
                    if *told {
                        continue;
                    }
                    let verdict = question.recent(now).unwrap_or_else(|| {
                        looks += 1;
                        question.poll(now, lives && now >= end)
                    });
                    match verdict {
                        Verdict::Silent => break 'all true,
                        Verdict::Lives => {
                            *told = true;
                            refused += 1;
                        }
                        _ => {}
                    }
                }
                if refused == crowd || now > 2 * PATIENCE_NS {
                    break false;
                }
            };
            assert_eq!(silent, !lives);
            assert_eq!(refused == crowd, lives);
            assert!(now <= end + 4 * EVERY, "{crowd}: {now}");
            assert!(looks <= 2 + now / LOOK_NS, "{looks}");
        }
    }
}

cases!(
    rtrs_server_names:
    a_crowd_that_asks_is_one,
    who_waits_for_a_name_gives_way,
    who_gives_up_a_name,
    a_name_that_is_kept,
    a_wait_that_lasts_is_polled_seldom,
    a_holder_that_lives_is_believed,
    a_holder_that_is_silent_is_given_up,
    who_does_not_listen_learns_nothing,
    an_old_question_is_put_again,
    a_name_whose_session_is_ending,
    the_longest_wait_counts,
    a_question_is_polled_seldom_and_often_enough,
);
