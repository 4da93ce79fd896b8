// SPDX-License-Identifier: GPL-2.0

//! Whether the server still has a session when a path is about to come up.

use crate::cases::turn::after;
use proptest::prelude::*;
use rtrs_client_logic::logic::turn::{Look, State};

proptest! {
    // While others are believed to be up, only an answer to the question makes the session known,
    // and each end has its reason in the last look.
    #[test]
    fn nothing_is_known_without_an_answer(looks in proptest::collection::vec(
        (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(up, answered, well)| Look { doubt: true, up, answered, well }), 0..20,
    )) {
        let end = (1..=looks.len()).find(|&n| after(&looks[..n]).is_final());
        match (after(&looks), end) {
            (State::Known, Some(n)) => {
                prop_assert!(n > 2);
                prop_assert!(looks[n - 1].answered && looks[n - 1].well);
                prop_assert!(looks[..n - 1].iter().all(|look| look.up));
            }
            (State::Forgotten, Some(n)) => prop_assert!(!looks[n - 1].up),
            (State::Abandoned, Some(n)) => prop_assert!(n > 1 && !looks[n - 1].well),
            (state, end) => prop_assert!(end.is_none() && !state.is_final()),
        }
    }
}
