// SPDX-License-Identifier: GPL-2.0

//! Which of several paths is lost, and when.

use rtrs_client::logic::silence::*;

/// Requests wait, and no message arrives.
pub(crate) const SILENT: Seen = Seen {
    heard: false,
    waits: true,
    excused: false,
};

const IDLE: Seen = Seen {
    heard: false,
    waits: false,
    excused: false,
};

const HEARD: Seen = Seen {
    heard: true,
    waits: true,
    excused: false,
};

pub(crate) fn after(seen: &[Seen]) -> Silence {
    let mut path = Silence::new();
    seen.iter().for_each(|&s| path.interval(s));
    path
}

fn a_new_path_is_nothing_yet() {
    let path = Silence::new();
    assert!(!path.is_silent() && !path.is_heard() && !path.is_lost(true));
}

fn asked_at_once_lost_later() {
    for n in 1..10 {
        let path = after(&[SILENT; 10][..n]);
        assert!(path.is_silent());
        assert_eq!(path.is_lost(true), n >= LOST as usize);
    }
}

fn a_path_is_kept_if_but_one_question_gets_through() {
    // After these silent intervals the path is probed. It answers within the next one, unless the
    // probe is lost.
    for lost in 0..=ASKED {
        let (mut path, mut asked) = (Silence::new(), 0);
        for _ in 0..LOST {
            path.interval(if asked > lost { HEARD } else { SILENT });
            if path.is_silent() {
                asked += 1;
            }
        }
        assert_eq!(
            path.is_lost(true),
            lost >= ASKED,
            "{lost} questions are lost"
        );
    }
}

fn a_path_without_requests_is_never_lost() {
    let path = after(&[IDLE; 100]);
    assert!(!path.is_silent() && !path.is_lost(true));
    // Nor is a path whose requests have all been answered, or have failed, meanwhile.
    let mut path = after(&[SILENT; LOST as usize]);
    path.interval(IDLE);
    assert!(!path.is_silent() && !path.is_lost(true));
}

fn a_doubted_path_has_to_show_that_it_lives() {
    let excused = Seen {
        excused: true,
        ..IDLE
    };
    for before in [&[][..], &[HEARD; 5], &[SILENT; 20]] {
        let mut path = after(before);
        assert!(path.doubt());
        for n in 1..=LOST {
            assert!(path.is_doubted() && !path.is_heard() && !path.is_lost(true));
            path.interval(IDLE);
            assert_eq!(path.is_lost(false), n >= LOST, "others need not be heard");
        }
        // The first sign of life ends the doubt.
        path.interval(HEARD);
        assert!(!path.is_doubted() && !path.is_lost(true));
        assert!(path.doubt());
        (0..20).for_each(|_| path.interval(excused));
        assert!(path.is_doubted() && !path.is_lost(true));
    }
    assert!(!after(&[SILENT; 20]).is_lost(false), "it is not doubted");
}

fn a_questioned_path_is_lost_like_one_on_which_requests_wait() {
    for heard in [false, true] {
        let mut path = after(&[HEARD; 5]);
        path.question(heard);
        assert!(path.is_asked() && !path.has_answered() && !path.is_doubted());
        // What came before the question counts for the interval, and is no answer.
        if heard {
            path.interval(IDLE);
            assert!(!path.is_silent() && !path.has_answered());
        }
        for n in 1..=LOST {
            path.interval(IDLE);
            assert!(!path.is_lost(false), "the server may be asleep");
            assert_eq!(path.is_lost(true), n >= LOST);
        }
        path.interval(HEARD);
        assert!(path.has_answered() && !path.is_asked() && !path.is_lost(true));
    }
}

fn an_answer_counts_before_the_interval_ends() {
    let mut path = Silence::new();
    path.question(false);
    path.hear();
    assert!(path.has_answered() && !path.is_asked() && path.is_heard_lately());
    path.interval(SILENT);
    assert!(!path.is_silent() && !path.is_heard_lately());
    path.hear();
    path.interval(IDLE);
    assert!(path.is_heard());
}

fn doubt_and_question_do_not_answer_each_other() {
    let mut path = Silence::new();
    path.question(false);
    assert!(path.doubt());
    assert!(!path.has_answered());
    path.question(true);
    path.interval(IDLE);
    assert!(!path.is_doubted() && !path.has_answered());
    assert!(path.doubt());
    path.interval(HEARD);
    assert!(!path.is_asked());
}

#[test]
fn doubt_that_is_repeated_does_not_begin_the_count_again() {
    let mut path = after(&[HEARD; 5]);
    for n in 0..LOST {
        assert_eq!(path.doubt(), n == 0);
        path.interval(IDLE);
    }
    assert!(path.is_lost(false));
}

fn one_answer_is_not_enough() {
    // A server was asleep: both paths were silent, one gets an answer first.
    let mut first = after(&[SILENT; 20]);
    let second = first;
    first.interval(HEARD);
    assert!(second.is_lost(true) && !first.is_heard() && !first.is_lost(true));
    first.interval(HEARD);
    assert!(first.is_heard());
}

fn asking_takes_no_longer_than_losing() {
    // A path without requests is probed from the first silent interval of another path on.
    let (mut silent, mut other) = (Silence::new(), Silence::new());
    loop {
        let seen = if silent.is_silent() { HEARD } else { IDLE };
        other.interval(seen);
        silent.interval(SILENT);
        if silent.is_lost(true) {
            break;
        }
    }
    assert!(other.is_heard());
}

cases!(
    rtrs_client_silence:
    a_new_path_is_nothing_yet,
    asked_at_once_lost_later,
    a_path_is_kept_if_but_one_question_gets_through,
    a_path_without_requests_is_never_lost,
    a_doubted_path_has_to_show_that_it_lives,
    a_questioned_path_is_lost_like_one_on_which_requests_wait,
    an_answer_counts_before_the_interval_ends,
    doubt_and_question_do_not_answer_each_other,
    one_answer_is_not_enough,
    asking_takes_no_longer_than_losing,
);
