// SPDX-License-Identifier: GPL-2.0

//! What gives up a place among the handshakes, memory, connections, or a session.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;
use rtrs_core::addr::Addr;
use rtrs_server_logic::logic::{
    room::{choose, choose_again, outnumbers, Need, Stake},
    source::{Prefixes, Source},
};

fn v4(host: u32) -> Source {
    Source::new(
        Some(Addr::V4(host.to_be_bytes())),
        Prefixes { v4: 32, v6: 64 },
    )
}

/// A member from `host`, which came at `came`.
fn stake(host: u32, came: u64, amount: u64) -> Stake<(u32, u64)> {
    Stake {
        source: v4(host),
        came,
        late: None,
        amount,
        stays: false,
        goes: false,
        member: (host, came),
    }
}

fn need(host: u32, missing: u64) -> Need {
    Need {
        source: v4(host),
        own: 0,
        missing,
        least: 0,
        own_late: false,
    }
}

/// One place among the handshakes.
fn place(host: u32) -> Need {
    Need {
        own_late: true,
        ..need(host, 1)
    }
}

/// Those that came before `deadline` take too long.
fn late(deadline: u64, mut crowd: Vec<Stake<(u32, u64)>>) -> Vec<Stake<(u32, u64)>> {
    for one in &mut crowd {
        one.late = (one.came < deadline).then_some(one.came);
    }
    crowd
}

/// What gives way, in the order of hosts and times; `None` if that is not enough.
fn gone(mut crowd: Vec<Stake<(u32, u64)>>, need: &Need) -> Option<Vec<(u32, u64)>> {
    choose(&mut crowd, need).then(|| crowd.iter().filter(|s| s.goes).map(|s| s.member).collect())
}

#[test]
fn a_handshake_of_the_largest_source_gives_way() {
    let way = |crowd: &[(u32, u64)], newcomer| {
        let crowd = crowd.iter().map(|c| stake(c.0, c.1, 1)).collect();
        gone(crowd, &place(newcomer))
    };
    assert_eq!(way(&[], 1), None);
    // Hundreds of sources with one client each: the oldest gives way.
    assert_eq!(way(&[(1, 30), (2, 10), (3, 20)], 4), Some(vec![(2, 10)]));
    assert_eq!(
        way(&[(1, 5), (2, 10), (2, 9), (3, 1)], 4),
        Some(vec![(2, 9)]),
        "the source that has most"
    );
    // A source never gives way to one with as many clients.
    assert_eq!(way(&[(1, 30), (2, 10), (4, 20)], 4), None);
    assert_eq!(way(&[(4, 30), (4, 10), (1, 20)], 4), None);
    assert_eq!(way(&[(4, 30), (1, 10), (1, 20)], 4), Some(vec![(1, 10)]));
}

#[test]
fn a_handshake_that_takes_long_goes_first() {
    // One host with two quick clients, and others with one slow client each; any newcomer.
    let crowd = [(1, 90), (1, 91), (2, 10), (3, 9), (4, 80)];
    for newcomer in 0..5 {
        let crowd = crowd.iter().map(|c| stake(c.0, c.1, 1)).collect();
        assert_eq!(gone(late(50, crowd), &place(newcomer)), Some(vec![(3, 9)]));
    }
}

#[test]
fn what_has_most_gives_way() {
    // Two hosts have everything by a few large paths, and others little.
    let crowd = vec![
        stake(1, 10, 400),
        stake(1, 20, 100),
        stake(2, 5, 450),
        stake(3, 1, 30),
        stake(4, 2, 30),
    ];
    assert_eq!(gone(crowd.clone(), &need(9, 0)), Some(vec![]));
    assert_eq!(gone(crowd.clone(), &need(9, 1)), Some(vec![(1, 10)]));
    // The first source has less than the second then.
    let more = Some(vec![(1, 10), (2, 5)]);
    assert_eq!(gone(crowd.clone(), &need(9, 401)), more);
    assert_eq!(gone(crowd.clone(), &need(3, 850)), more);
    // Nothing has to go if it does not help.
    assert_eq!(gone(crowd.clone(), &need(9, 1011)), None);
    // A source that has most gets nothing of others.
    assert_eq!(gone(crowd.clone(), &need(1, 1)), None);
    assert_eq!(gone(crowd, &need(2, 1)), Some(vec![(1, 10)]));
    assert_eq!(gone(vec![], &need(1, 1)), None);
}

#[test]
fn what_takes_long_goes_first() {
    let crowd = late(50, vec![stake(1, 90, 500), stake(2, 10, 3), stake(3, 9, 2)]);
    let two = Some(vec![(2, 10), (3, 9)]);
    assert_eq!(gone(crowd.clone(), &need(9, 1)), Some(vec![(3, 9)]));
    assert_eq!(gone(crowd.clone(), &need(9, 5)), two);
    let all = Some(vec![(1, 90), (2, 10), (3, 9)]);
    assert_eq!(gone(crowd, &need(9, 6)), all);
    // Nothing ends others of its own host.
    let own = late(50, vec![stake(9, 1, 5), stake(9, 90, 5)]);
    assert_eq!(gone(own, &need(9, 1)), None);
    // One that waits for the server does not take long.
    let waits = vec![stake(1, u64::MAX, 5), stake(2, 60, 5), stake(2, 61, 5)];
    assert_eq!(gone(late(50, waits), &need(9, 1)), Some(vec![(2, 60)]));
}

#[test]
fn a_large_need_displaces_nothing_smaller() {
    let crowd = vec![
        stake(1, 10, 300),
        stake(1, 20, 200),
        stake(2, 5, 450),
        stake(9, 7, 40),
    ];
    let wants = |own, missing| Need {
        own,
        ..need(9, missing)
    };
    assert_eq!(gone(crowd.clone(), &wants(459, 300)), Some(vec![(1, 10)]));
    // Its source would have as much as the largest.
    assert_eq!(gone(crowd.clone(), &wants(460, 1)), None);
    // It would have as much as the other one, whose turn is then.
    assert_eq!(gone(crowd.clone(), &wants(410, 301)), None);
    assert_eq!(gone(crowd, &wants(409, 301)), Some(vec![(1, 10), (2, 5)]));
}

/// Sessions: of four hosts that have all, and of one with 64.
fn sessions(live: bool) -> Vec<Stake<(u32, u64)>> {
    let mut all: Vec<_> = (0..64).map(|n| stake(7, n, 1)).collect();
    all.extend((64..1024).map(|n| stake(1 + n as u32 % 4, n, 1)));
    all.iter_mut().for_each(|s| s.stays = live);
    all
}

#[test]
fn a_kept_session_of_a_large_source_ends() {
    let room = |host| Need {
        least: 64,
        ..need(host, 1)
    };
    // The oldest of all is that of the small host.
    assert_eq!(gone(sessions(false), &room(9)), Some(vec![(1, 64)]));
    assert_eq!(gone(sessions(false), &room(7)), Some(vec![(1, 64)]));
    assert_eq!(gone(sessions(false), &room(1)), None);
    // No session ends that has a path.
    assert_eq!(gone(sessions(true), &room(9)), None);
    let mut one = sessions(true);
    one[500].stays = false;
    let first = one[500].member;
    assert_eq!(gone(one, &room(9)), Some(vec![first]));
    // A host with 64 keeps them all, even if no other has more.
    let honest = |n: u64| (0..n).map(|came| stake(7, came, 1)).collect();
    assert_eq!(gone(honest(64), &room(9)), None);
    assert_eq!(gone(honest(65), &room(9)), Some(vec![(7, 0)]));
    // Sixteen hosts have all, none more than its share, with sessions that were up for a moment; of
    // another one's, which has waited for longer than it was up as well, none goes.
    let mut all = honest(64);
    all.iter_mut().for_each(|s| s.late = Some(1_000_000));
    all.extend((64..1024).map(|n| Stake {
        late: Some(n),
        ..stake(100 + n as u32 % 15, n, 1)
    }));
    assert_eq!(gone(all.clone(), &room(9)), Some(vec![(104, 64)]));
    let share = Need {
        missing: 960,
        ..room(9)
    };
    let gone_then = gone(all, &share).unwrap();
    assert!(gone_then.iter().all(|s| s.0 != 7));
}

#[test]
fn only_what_a_source_could_give_up_is_compared() {
    let mut all = sessions(false);
    // The first of them gave way before, and still exist; others have got a path meanwhile.
    let host = |s: &&mut Stake<(u32, u64)>| s.member.0 == 1;
    all.iter_mut()
        .filter(host)
        .take(30)
        .for_each(|s| s.amount = 0);
    all.iter_mut()
        .filter(host)
        .skip(30)
        .take(10)
        .for_each(|s| s.stays = true);
    // So many in time, and so many that take too long.
    let handshakes = |in_time: u32, late: u32| -> Vec<_> {
        (0..in_time + late)
            .map(|i| Stake {
                late: (i < late).then_some(1),
                ..stake(i, 0, 1)
            })
            .collect()
    };
    assert!(!outnumbers(&all, &handshakes(0, 0), 256), "none goes");
    let of_host_2 = Need {
        least: 64,
        ..need(9, 1)
    };
    assert!(choose(&mut all, &of_host_2));
    assert!(outnumbers(&all, &handshakes(239, 0), 256));
    assert!(!outnumbers(&all, &handshakes(240, 0), 256));
    // It is kept by right: handshakes that take too long go first.
    assert!(!outnumbers(&all, &handshakes(0, 1), 256));
    all.iter_mut()
        .for_each(|s| s.goes = s.member.0 == 1 && s.came == 1020);
    assert!(outnumbers(&all, &handshakes(199, 0), 256));
    assert!(!outnumbers(&all, &handshakes(200, 0), 256));
    // One that has waited for too long is one of many such.
    all.iter_mut()
        .filter(|s| s.came % 2 == 0)
        .for_each(|s| s.late = Some(1));
    // So many handshakes in time are no match for it, but more are.
    assert!(outnumbers(&all, &handshakes(256, 471), 256));
    assert!(!outnumbers(&all, &handshakes(257, 471), 256));
    assert!(!outnumbers(&all, &handshakes(0, 472), 256));
    assert!(outnumbers(&all, &handshakes(727, 0), 256));
    assert!(!outnumbers(&all, &handshakes(728, 0), 256));
}

#[test]
fn what_is_gone_is_not_chosen_again() {
    let mut all = sessions(false);
    let one = Need {
        least: 64,
        own_late: true,
        ..need(7, 1)
    };
    let chosen = |all: &[Stake<(u32, u64)>]| -> Vec<_> {
        all.iter().filter(|s| s.goes).map(|s| s.member).collect()
    };
    all.iter_mut()
        .filter(|s| s.member.0 == 7)
        .for_each(|s| s.late = Some(s.came));
    assert!(choose(&mut all, &one));
    assert_eq!(chosen(&all), [(7, 0)], "its own, which takes too long");
    assert!(choose_again(&mut all, &one, |s| s.member.1 >= 5));
    assert_eq!(chosen(&all), [(7, 5)]);
    // Then that of the largest source which came first.
    assert!(choose_again(&mut all, &one, |s| s.late.is_none()));
    assert_eq!(chosen(&all), [(1, 64)]);
    assert!(!choose_again(&mut all, &one, |s| s.member.0 == 7));
}

proptest! {
    #[test]
    fn no_handshake_gives_way_to_a_larger_source(
        crowd in proptest::collection::vec((0u32..6, any::<u64>()), 0..50), newcomer in 0u32..8,
    ) {
        let of = |source| crowd.iter().filter(|c| c.0 == source).count();
        let most = (0..6).filter(|&s| s != newcomer).map(of).max().unwrap();
        let stakes = crowd.iter().map(|c| stake(c.0, c.1, 1)).collect();
        let victims = gone(stakes, &place(newcomer));
        prop_assert_eq!(victims.is_some(), most > of(newcomer));
        if let Some(victims) = victims {
            prop_assert_eq!(victims.len(), 1);
            let (source, since) = victims[0];
            prop_assert_eq!(of(source), most);
            prop_assert!(source != newcomer);
            prop_assert!(crowd.iter().all(|c| c.0 != source || c.1 >= since));
        }
    }

    #[test]
    fn nothing_gives_way_in_vain(
        items in proptest::collection::vec((0u32..5, 0u64..100, 0u64..20, any::<bool>()), 0..40),
        newcomer in 0u32..6, missing in 0u64..200, deadline in 0u64..50, least in 0u64..30,
        own in 0u64..60, own_late: bool,
    ) {
        let crowd: Vec<_> = items
            .iter()
            .map(|&(host, came, amount, stays)| Stake { stays, ..stake(host, came, amount) })
            .collect();
        let crowd = late(deadline, crowd);
        let of = |host| crowd.iter().filter(|s| s.member.0 == host).map(|s| s.amount).sum::<u64>();
        let mut chosen = crowd.clone();
        let need = Need { own, least, own_late, ..need(newcomer, missing) };
        let enough = choose(&mut chosen, &need);
        let goes: Vec<_> = chosen.iter().filter(|s| s.goes).collect();
        let freed: u64 = goes.iter().map(|s| s.amount).sum();
        prop_assert!(!enough || freed >= missing);
        // The last one was needed, whichever it was.
        if let Some(most) = goes.iter().map(|s| s.amount).max().filter(|_| enough) {
            prop_assert!(freed < missing + most);
        }
        let floor = (of(newcomer) + own).max(least);
        for s in &goes {
            prop_assert!(!s.stays && s.amount != 0);
            prop_assert!(s.member.0 != newcomer || own_late && s.late.is_some());
            if s.late.is_none() {
                prop_assert!(of(s.member.0) > floor);
                // So it was even when the last one of that source had to go.
                let same = goes.iter().filter(|t| t.member.0 == s.member.0);
                let gone: u64 = same.clone().map(|t| t.amount).sum();
                let last = same.filter(|t| t.late.is_none()).max_by_key(|t| t.came);
                let tie = goes.iter().filter(|t| t.member.0 == s.member.0)
                    .filter(|t| last.is_some_and(|last| last.came == t.came));
                let most = tie.map(|t| t.amount).max().unwrap_or(0);
                prop_assert!(of(s.member.0) - gone + most > floor);
            }
        }
    }
}
