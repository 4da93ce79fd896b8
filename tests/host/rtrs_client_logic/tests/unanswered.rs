// SPDX-License-Identifier: GPL-2.0

//! When to give up a server that lives but does not answer.

#![cfg(not(loom))]

use rtrs_client_logic::logic::unanswered::*;

const SEC: u64 = 1_000_000_000;
const BEAT: u64 = 5 * SEC;
const TIMEOUT_MS: u32 = 120_000;

/// A link of a session, second by second.
struct Server {
    now: u64,
    session: InARow,
    link: Unanswered,
    /// When the waiting requests were sent, the oldest first.
    sent: Vec<u64>,
    told: u32,
    given_up: u32,
}

impl Server {
    fn new() -> Self {
        Self {
            now: 0,
            session: InARow::new(),
            link: Unanswered::new(0),
            sent: vec![],
            told: 0,
            given_up: 0,
        }
    }

    fn timeout(&self) -> Option<u64> {
        self.session.timeout_ns(TIMEOUT_MS)
    }

    /// An interval with or without an answer.
    fn beat(&mut self, answered: bool) {
        self.now += BEAT;
        if answered {
            self.session.answered();
        }
        let (now, timeout) = (self.now, self.timeout());
        if !self
            .link
            .interval(now, answered, !self.sent.is_empty(), timeout)
        {
            return;
        }
        let age = now - self.sent[0];
        match self.link.look(now, age, timeout.unwrap()) {
            Verdict::Fine => return,
            Verdict::Slow => (),
            Verdict::Stalled => {
                if self.session.may_give_up() {
                    self.given_up += 1;
                    // All are sent again over the next link.
                    self.link = Unanswered::new(now);
                    self.sent.fill(now);
                }
            }
        }
        self.told += 1;
    }
}

#[test]
fn a_server_that_answers_nothing() {
    let mut server = Server::new();
    server.sent = vec![0];
    for _ in 0..23 {
        server.beat(false);
    }
    assert_eq!((server.given_up, server.told), (0, 0), "115 s");
    server.beat(false);
    assert_eq!((server.given_up, server.told), (1, 1), "120 s");
    // And 240 s and 480 s after that; from then on a report comes every 960 s.
    for _ in 0..144 {
        server.beat(false);
    }
    assert_eq!((server.given_up, server.told), (3, 3));
    for _ in 0..1920 {
        server.beat(false);
    }
    assert_eq!((server.given_up, server.told), (3, 13));
    // An answer resets the timeout.
    server.beat(true);
    assert_eq!(server.timeout(), Some(120 * SEC));
}

#[test]
fn a_disk_that_takes_60_s() {
    let mut server = Server::new();
    for n in 0..1000 {
        if n % 12 == 0 {
            server.sent = vec![server.now];
        }
        server.beat(n % 12 == 11);
    }
    assert_eq!((server.given_up, server.told), (0, 0));
}

#[test]
fn a_disk_that_takes_200_s_is_waited_for() {
    // The copy begins when the first request is done: so it takes 400 s, and the next one 600 s.
    let mut server = Server::new();
    server.sent = vec![0];
    let (mut copies, mut done) = (1, 0);
    while done == 0 {
        server.beat(false);
        copies = copies.max(server.given_up + 1);
        if server.now >= u64::from(copies) * 200 * SEC {
            done = copies;
        }
        assert!(server.now < 3600 * SEC);
    }
    assert!(server.given_up < MAX_IN_A_ROW);
}

#[test]
fn one_slow_request_among_others() {
    let mut server = Server::new();
    server.sent = vec![0];
    for _ in 0..240 {
        server.beat(true);
        server.sent.truncate(1);
        server.sent.push(server.now);
    }
    assert_eq!((server.given_up, server.told), (0, 10), "told every 120 s");
}

#[test]
fn requests_that_come_late() {
    let mut server = Server::new();
    // No request waits, for hours.
    for _ in 0..10_000 {
        server.beat(false);
    }
    server.sent = vec![server.now];
    for _ in 0..23 {
        server.beat(false);
    }
    assert_eq!(server.given_up, 0);
    server.beat(false);
    assert_eq!(server.given_up, 1);
}

#[test]
fn off_is_off() {
    let mut link = Unanswered::new(0);
    assert_eq!(InARow::new().timeout_ns(0), None);
    for now in 0..100 {
        assert!(!link.interval(now * 3600 * SEC, false, true, None));
    }
}
