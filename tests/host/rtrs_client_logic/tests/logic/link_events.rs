// SPDX-License-Identifier: GPL-2.0

//! Events that users get about their sessions, and the path that has the server create a session.

use proptest::prelude::*;
use rtrs_client_logic::logic::link_events::*;

proptest! {
    // In any sequence events alternate, and the first one is the loss.
    #[test]
    fn events_alternate(what in proptest::collection::vec(0..6u8, 0..60)) {
        let (mut state, mut up, mut last) = (LinkState::default(), 0, LinkEvent::Reconnected);
        for what in what {
            match what {
                0 => { state.path_up(); up += 1; }
                1 if up > 0 => { state.path_down(); up -= 1; }
                2 => state.fail(),
                3 if !state.is_opened() => state.open(),
                4 => { state.hand_over(); }
                _ => if let Some(event) = state.tell() {
                    prop_assert!(event != last);
                    prop_assert!(state.is_opened());
                    prop_assert!(event == LinkEvent::Disconnected || up > 0);
                    last = event;
                }
            }
            prop_assert_eq!(state.is_up(), up > 0);
        }
    }
}
