// SPDX-License-Identifier: GPL-2.0

//! The server's decisions, without a kernel.

use rtrs_server::logic::{
    chunk_state::*,
    listen::*,
    path_state::{Action, CloseReason, Event, ServerPathState, Transition},
    quota::*,
};

pub(crate) fn inc(n: u32) -> Incarnation {
    must!(Incarnation::new(n))
}

fn chunk_story() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.end(inc(1)), End::NotBusy);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Violation, "duplicate");
    assert_eq!(
        chunk.try_begin(inc(2)),
        Begin::Parked(inc(1)),
        "failed over"
    );
    assert_eq!(chunk.try_begin(inc(2)), Begin::Violation, "duplicate");
    assert_eq!(chunk.end(inc(2)), End::NotBusy);
    assert_eq!(chunk.end(inc(1)), End::Run(inc(2)));
    assert!(!chunk.cancel_parked(inc(2)), "it runs already");
    assert_eq!(chunk.end(inc(2)), End::Free);
    assert_eq!(chunk.try_begin(inc(3)), Begin::Run, "free");
}

fn parked_request_is_dropped_with_its_path() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(u32::MAX)), Begin::Parked(inc(1)));
    assert!(!chunk.cancel_parked(inc(1)));
    assert!(chunk.cancel_parked(inc(u32::MAX)));
    assert!(!chunk.cancel_parked(inc(u32::MAX)));
    assert_eq!(chunk.end(inc(1)), End::Free);
}

fn third_path_takes_the_place_of_the_second() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(2)), Begin::Parked(inc(1)));
    assert_eq!(chunk.try_begin(inc(3)), Begin::Replaced(inc(2)));
    assert!(!chunk.cancel_parked(inc(2)));
    assert_eq!(chunk.end(inc(1)), End::Run(inc(3)));
    assert_eq!(chunk.end(inc(3)), End::Free);
}

/// The state after all events, and the actions, with none at the end.
fn run(events: &[Event]) -> (ServerPathState, [Action; 4]) {
    let mut state = ServerPathState::Handshaking;
    let mut actions = [Action::None; 4];
    for &event in events {
        let Transition {
            state: next,
            action,
        } = state.next(event);
        if action != Action::None {
            match actions.iter_mut().find(|a| **a == Action::None) {
                Some(free) => *free = action,
                None => fail!("too many actions"),
            }
        }
        state = next;
    }
    (state, actions)
}

fn a_good_life() {
    let (state, actions) = run(&[
        Event::AllAccepted,
        Event::InfoReceived,
        Event::Deadline,
        Event::Ready,
        Event::Deadline,
        Event::Close(CloseReason::Peer),
        Event::Close(CloseReason::ConnError),
        Event::CloseDone,
    ]);
    assert_eq!(state, ServerPathState::Closed(CloseReason::Peer));
    assert_eq!(
        actions,
        [
            Action::Prepare,
            Action::Serve,
            Action::Close,
            Action::Release
        ]
    );
}

fn bad_lives() {
    let all = Event::AllAccepted;
    for (events, reason) in [
        (&[Event::Deadline][..], CloseReason::Deadline),
        (&[all, Event::Deadline], CloseReason::Deadline),
        (&[Event::InfoReceived], CloseReason::Violation),
        (&[all, all], CloseReason::Violation),
        (
            &[all, Event::InfoReceived, Event::InfoReceived],
            CloseReason::Violation,
        ),
        (
            &[
                all,
                Event::InfoReceived,
                Event::Close(CloseReason::Refused),
                Event::Ready,
            ],
            CloseReason::Refused,
        ),
    ] {
        let (state, actions) = run(events);
        assert_eq!(state, ServerPathState::Closing(reason));
        let last = actions.iter().rfind(|a| **a != Action::None);
        assert_eq!(last, Some(&Action::Close));
        assert!(!actions.contains(&Action::Serve));
    }
    let (state, actions) = run(&[Event::CloseDone, Event::Ready]);
    assert_eq!(state, ServerPathState::Handshaking);
    assert_eq!(actions, [Action::None; 4]);
    assert!(state.accepts_cons() && state.in_handshake());
}

fn quota_story() {
    let quota = Quota::new(Resource::Cons, 100);
    assert_eq!(quota.take(100), Ok(()));
    let over = must!(quota.take(1).err());
    assert_eq!((over.resource, over.max), (Resource::Cons, 100));
    assert_eq!(quota.has_room(0), Ok(()));
    assert!(quota.has_room(1).is_err());
    assert!(quota.has_room(u64::MAX).is_err());
    assert!(quota.take(u64::MAX).is_err());
    assert_eq!(quota.take(0), Ok(()));
    assert_eq!(quota.refused(), 4);
    assert_eq!((quota.missing(0), quota.missing(3)), (0, 3));
    assert!(quota.set_max(50));
    assert!(quota.take(1).is_err());
    assert_eq!(quota.missing(1), 51);
    assert!(quota.uncharge(60));
    assert_eq!((quota.current(), quota.max()), (40, 50));
    assert_eq!(
        (quota.missing(10), quota.missing(u64::MAX)),
        (0, u64::MAX - 50)
    );
    assert_eq!(quota.take(10), Ok(()));
    assert!(!quota.uncharge(51));
    assert_eq!(quota.current(), 0);
}

fn quota_of_what_others_count() {
    let quota = Quota::new(Resource::PathsPerSession, 2);
    assert_eq!(quota.allows(2), Ok(()));
    assert_eq!(
        quota.allows(3),
        Err(OverQuota {
            resource: Resource::PathsPerSession,
            max: 2
        })
    );
    assert_eq!((quota.current(), quota.refused()), (0, 1));
    let over = OverQuota {
        resource: Resource::PathsPerSession,
        max: 4,
    };
    assert_eq!(quota.refuse(4), over);
    assert_eq!((quota.max(), quota.refused()), (2, 2));
}

fn queues_are_estimated() {
    // A service connection, and one for IO of the default depth.
    assert_eq!(queue_memory(1043, 1027), 4096 * 256 + 4096 * 64);
    assert_eq!(queue_memory(2561, 513), 5120 * 256 + 4096 * 64);
    assert_eq!(queue_memory(1, 1), 2 * 256 + 2 * 64);
    let most = u64::from(u32::MAX) + 1;
    assert_eq!(
        queue_memory(u32::MAX, u32::MAX),
        2 * most * 256 + 2 * most * 64
    );
}

fn maxima_are_sane() {
    for (index, resource) in Resource::ALL.into_iter().enumerate() {
        assert_eq!(resource.index(), index);
        let range = resource.range();
        assert!(*range.start() > 0);
        let quota = Quota::new(resource, *range.end());
        assert!(!quota.set_max(range.start() - 1));
        assert!(!quota.set_max(range.end() + 1));
        assert_eq!(quota.max(), *range.end());
        assert!(quota.set_max(*range.start()));
        assert_eq!(quota.max(), *range.start());
    }
}

fn listen_says_what_is_different() {
    let text = "1234:always_invalidate=N:sess_queue_depth=64,1300:max_chunk_size=65536\n";
    let first = must!(overrides(text, 1234));
    assert_eq!(
        first,
        Overrides {
            queue_depth: Some(64),
            chunk_size: None,
            always_invalidate: Some(false)
        }
    );
    assert_eq!(must!(overrides(text, 1300)).chunk_size, Some(65536));
    assert_eq!(overrides(text, 1301), Ok(Overrides::default()));
    assert_eq!(overrides("", 1234), Ok(Overrides::default()));
    assert_eq!(overrides("1300", 1300), Ok(Overrides::default()));
    for (text, error) in [
        ("x", ListenError::Port),
        ("0", ListenError::Port),
        ("70000", ListenError::Port),
        ("1,", ListenError::Port),
        ("1:", ListenError::Key),
        ("1:x", ListenError::Key),
        ("1:x=1", ListenError::Key),
        ("1:sess_queue_depth=", ListenError::Value),
        ("1:sess_queue_depth=1x", ListenError::Value),
        ("1:max_chunk_size=99999999999", ListenError::Value),
        ("1:always_invalidate=maybe", ListenError::Value),
        ("1:always_invalidate=Y,2,1", ListenError::Twice),
    ] {
        let found = ports(text).find_map(Result::err);
        assert_eq!(found, Some(error), "{text}");
    }
}

cases!(
    rtrs_server_decisions:
    chunk_story,
    parked_request_is_dropped_with_its_path,
    third_path_takes_the_place_of_the_second,
    a_good_life,
    bad_lives,
    quota_story,
    quota_of_what_others_count,
    queues_are_estimated,
    maxima_are_sane,
    listen_says_what_is_different,
);
