// SPDX-License-Identifier: GPL-2.0

//! Whether a server is silent over a link that is not in use yet.

use rtrs_client::logic::listen::*;

const MS: u64 = 1_000_000;
const BEGIN: u64 = 1_000 * MS;
/// Between two looks.
const LOOK: u64 = 20 * MS;

/// Looks for as long as there is no end, until `end`; the server is heard when `heard` says so.
/// Returns when it was given up, and how often it was asked.
pub(crate) fn listen(end: u64, mut heard: impl FnMut(u64) -> bool) -> (Option<u64>, u32) {
    let mut listener = Listener::new(BEGIN);
    let (mut since, mut asked) = (0, 0);

    while since < end {
        since += LOOK;
        match listener.look(BEGIN + since, heard(since)) {
            Verdict::Wait => {}
            Verdict::Ask => asked += 1,
            Verdict::Silent => return (Some(since), asked),
        }
    }
    (None, asked)
}

fn a_silent_server_is_asked_and_given_up() {
    // At 0.5 s, 1 s, and so on.
    assert_eq!(listen(60_000 * MS, |_| false), (Some(SILENT_NS), 9));
}

fn a_server_that_talks_is_not_asked() {
    let talks = |since: u64| since % (400 * MS) == 0;
    assert_eq!(listen(60_000 * MS, talks), (None, 0));
}

fn a_server_that_only_answers_is_not_given_up() {
    let answers = |since: u64| since % (4_800 * MS) == 0;
    let (given_up, asked) = listen(60_000 * MS, answers);
    assert_eq!(given_up, None);
    assert!(asked > 60);
}

fn nothing_follows_from_the_silence_of_a_machine_that_stood_still() {
    let mut listener = Listener::new(BEGIN);
    assert_eq!(listener.look(BEGIN + 2 * SILENT_NS, false), Verdict::Wait);
    let now = BEGIN + 2 * SILENT_NS;
    assert_eq!(listener.look(now + ASK_NS, false), Verdict::Ask);
    // Nor from a clock that went back.
    assert_eq!(listener.look(BEGIN, false), Verdict::Wait);
}

cases!(
    rtrs_client_listen:
    a_silent_server_is_asked_and_given_up,
    a_server_that_talks_is_not_asked,
    a_server_that_only_answers_is_not_given_up,
    nothing_follows_from_the_silence_of_a_machine_that_stood_still,
);
