// SPDX-License-Identifier: GPL-2.0

//! Whether a server is silent over a link that is not in use yet.

use crate::cases::listen::listen;
use proptest::prelude::*;
use rtrs_client_logic::logic::listen::SILENT_NS;

const MS: u64 = 1_000_000;

proptest! {
    // It is given up exactly that long after it was heard last, and not while it is heard.
    #[test]
    fn given_up_after_the_last_word(words in proptest::collection::btree_set(1u64..1_000, 0..20)) {
        let at = |since: u64| since % (20 * MS) == 0 && words.contains(&(since / (20 * MS)));
        let mut last = 0;
        for &word in &words {
            if word * 20 * MS > last + SILENT_NS {
                break;
            }
            last = word * 20 * MS;
        }
        prop_assert_eq!(listen(60_000 * MS, at).0, Some(last + SILENT_NS));
    }
}
