// SPDX-License-Identifier: GPL-2.0

//! A path either gives way or starts, and only a path that starts tells the user of its session.

use proptest::prelude::*;
use rtrs_server_logic::logic::stage::Stage;

proptest! {
    #[test]
    fn a_path_gives_way_or_starts(steps in proptest::collection::vec(0u8..3, 0..12)) {
        let mut stage = Stage::Open;
        let (mut gave_way, mut started, mut over) = (0, 0, false);
        for step in steps {
            match step {
                0 => gave_way += u32::from(stage.give_way()),
                1 => started += u32::from(stage.start()),
                _ => {
                    stage.end();
                    over = true;
                }
            }
            prop_assert!(gave_way + started <= 1);
            prop_assert_eq!(stage.is_starting(), started == 1 && !over);
            prop_assert_eq!(stage.may_tell(true), stage.is_starting());
            prop_assert_eq!(stage.is_in_handshake(), started == 0 && !over);
        }
    }
}
