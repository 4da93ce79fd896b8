// SPDX-License-Identifier: GPL-2.0

//! When to give up a server that lives but does not answer.

use rtrs_client::logic::unanswered::*;

const SEC: u64 = 1_000_000_000;

const BEAT: u64 = 5 * SEC;

const TIMEOUT_MS: u32 = 120_000;

/// A link of a session, second by second.
struct Server {
    now: u64,
    session: InARow,
    link: Unanswered,
    /// When the oldest request that waits was sent.
    oldest: Option<u64>,
    told: u32,
    given_up: u32,
}

impl Server {
    fn new() -> Self {
        Self {
            now: 0,
            session: InARow::new(),
            link: Unanswered::new(0),
            oldest: None,
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
        let waits = self.oldest.is_some();
        if !self.link.interval(now, answered, waits, timeout) {
            return;
        }
        let age = now - must!(self.oldest);
        match self.link.look(now, age, must!(timeout)) {
            Verdict::Fine => return,
            Verdict::Slow => (),
            Verdict::Stalled => {
                if self.session.may_give_up() {
                    self.given_up += 1;
                    // All are sent again over the next link.
                    self.link = Unanswered::new(now);
                    self.oldest = Some(now);
                }
            }
        }
        self.told += 1;
    }
}

fn a_server_that_answers_nothing() {
    let mut server = Server::new();
    server.oldest = Some(0);
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

fn a_disk_that_takes_60_s() {
    let mut server = Server::new();
    for n in 0..1000 {
        if n % 12 == 0 {
            server.oldest = Some(server.now);
        }
        server.beat(n % 12 == 11);
    }
    assert_eq!((server.given_up, server.told), (0, 0));
}

fn a_disk_that_takes_200_s_is_waited_for() {
    // The copy begins when the first request is done: so it takes 400 s, and the next one 600 s.
    let mut server = Server::new();
    server.oldest = Some(0);
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

fn one_slow_request_among_others() {
    let mut server = Server::new();
    server.oldest = Some(0);
    for _ in 0..240 {
        server.beat(true);
    }
    assert_eq!((server.given_up, server.told), (0, 10), "told every 120 s");
}

fn requests_that_come_late() {
    let mut server = Server::new();
    // No request waits, for hours.
    for _ in 0..10_000 {
        server.beat(false);
    }
    server.oldest = Some(server.now);
    for _ in 0..23 {
        server.beat(false);
    }
    assert_eq!(server.given_up, 0);
    server.beat(false);
    assert_eq!(server.given_up, 1);
}

fn off_is_off() {
    let mut link = Unanswered::new(0);
    assert_eq!(InARow::new().timeout_ns(0), None);
    for now in 0..100 {
        assert!(!link.interval(now * 3600 * SEC, false, true, None));
    }
}

/// One connection of a link whose others are answered.
struct Connection {
    now: u64,
    session: InARow,
    quiet: Quiet,
    ended: u32,
    given_up: u32,
}

impl Connection {
    const NUMBER: u16 = 2;

    fn new() -> Self {
        Self {
            now: 0,
            session: InARow::new(),
            quiet: Quiet::new(0),
            ended: 0,
            given_up: 0,
        }
    }

    /// An interval in which requests wait; `answered` of them are answered.
    fn beat(&mut self, answered: u32, unsent: Option<u64>) {
        self.now += BEAT;
        self.ended = self.ended.wrapping_add(answered);
        // The others.
        self.session.answered();
        self.session.answered_on(Self::NUMBER - 1);
        if self.quiet.interval(self.now, self.ended, true) {
            self.session.answered_on(Self::NUMBER);
        }
        let patience = must!(self.session.patience(TIMEOUT_MS));
        if patience.is_stuck(self.quiet.ns(self.now), unsent)
            && self.session.may_give_up_for(Self::NUMBER)
        {
            self.given_up += 1;
            self.quiet = Quiet::new(self.now);
            self.ended = 0;
        }
    }

    fn seconds(&mut self, seconds: u64, answered: u32, unsent: Option<u64>) {
        for _ in 0..seconds * SEC / BEAT {
            self.beat(answered, unsent);
        }
    }
}

fn a_connection_that_answers_nothing_beside_others() {
    let mut connection = Connection::new();
    connection.seconds(FACTOR * 120 - 5, 0, None);
    assert_eq!(connection.given_up, 0, "a disk may be slow");
    connection.seconds(5, 0, None);
    assert_eq!(connection.given_up, 1);
    // It is the disk: that is the end of it after 480, 960 and 1920 s, whatever others answer.
    connection.seconds(FACTOR * 120 * 2, 0, None);
    assert_eq!(connection.given_up, 2);
    connection.seconds(24 * 3600, 0, None);
    assert_eq!(connection.given_up, 3);
    // An answer there, over any path, and all begins again.
    connection.beat(1, None);
    connection.seconds(FACTOR * 120, 0, None);
    assert_eq!(connection.given_up, 4);
}

fn a_connection_whose_requests_do_not_arrive() {
    let mut connection = Connection::new();
    connection.seconds(115, 0, Some(3600 * SEC));
    assert_eq!(connection.given_up, 0);
    connection.seconds(5, 0, Some(119 * SEC));
    assert_eq!(connection.given_up, 0, "the oldest is not that old");
    connection.seconds(5, 0, Some(120 * SEC));
    assert_eq!(connection.given_up, 1);
}

fn slow_requests_on_a_connection_that_answers() {
    let mut connection = Connection::new();
    for _ in 0..1000 {
        connection.seconds(100, 0, None);
        connection.beat(1, None);
    }
    assert_eq!(connection.given_up, 0);
    // No request waits there.
    for now in 1..1000 {
        connection.quiet.interval(now * 3600 * SEC, 7, false);
        assert_eq!(connection.quiet.ns(now * 3600 * SEC), 0);
    }
    assert_eq!(InARow::new().patience(0), None);
}

fn a_link_that_answers_nothing_is_judged_as_a_whole() {
    let mut link = Unanswered::new(0);
    link.interval(60 * SEC, true, true, None);
    assert!(link.is_answered(179 * SEC, 120 * SEC));
    assert!(!link.is_answered(180 * SEC, 120 * SEC));
    // The rows are counted separately.
    let session = InARow::new();
    while session.may_give_up_for(1) {}
    assert_eq!(session.timeout_ns(TIMEOUT_MS), Some(120 * SEC));
    assert!(session.may_give_up());
}

cases!(
    rtrs_client_unanswered:
    a_server_that_answers_nothing,
    a_disk_that_takes_60_s,
    a_disk_that_takes_200_s_is_waited_for,
    one_slow_request_among_others,
    requests_that_come_late,
    off_is_off,
    a_connection_that_answers_nothing_beside_others,
    a_connection_whose_requests_do_not_arrive,
    slow_requests_on_a_connection_that_answers,
    a_link_that_answers_nothing_is_judged_as_a_whole,
);
