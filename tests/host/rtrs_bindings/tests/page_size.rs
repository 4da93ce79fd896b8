// SPDX-License-Identifier: GPL-2.0

//! Sizes of pages in which memory is described.

// There is no kernel here that could be brought down.
#![cfg(not(loom))]

use rtrs_bindings::page_size::{has, largest};

/// As drivers announce them: all, from 4 KiB up; one; three.
const SIZES: [u64; 3] = [!0xfff, 0x1000, 0x4020_1000];

/// All addresses and lengths of `pieces`.
fn bits(pieces: &[(u64, u64)]) -> u64 {
    pieces.iter().fold(0, |bits, (at, len)| bits | at | len)
}

#[test]
fn each_piece_begins_and_ends_with_a_page() {
    for sizes in SIZES {
        for order in 12..22 {
            for at in (0..64).map(|n| 0x7_f000_0000 + n * 0x1000) {
                let pieces = [(at, 1 << order), (0x1_0000_0000, 1 << order)];
                let size = largest(sizes, bits(&pieces)).unwrap();

                assert!(has(sizes, size));
                for (at, len) in pieces {
                    assert_eq!((at % u64::from(size), len % u64::from(size)), (0, 0));
                }
                // A larger one does not fit.
                let larger = (12..32)
                    .map(|n| 1u32 << n)
                    .filter(|&n| n > size && has(sizes, n));
                for n in larger.map(u64::from) {
                    assert!(pieces.iter().any(|(at, len)| at % n != 0 || len % n != 0));
                }
            }
        }
    }
}

#[test]
fn a_piece_that_is_aligned_to_its_length_is_one_page() {
    assert_eq!(
        largest(!0xfff, bits(&[(0x3_0000_8000, 0x8000)])),
        Some(0x8000)
    );
    assert_eq!(
        largest(!0xfff, bits(&[(0x3_0000_9000, 0x8000)])),
        Some(0x1000)
    );
}

#[test]
fn there_may_be_none() {
    assert_eq!(largest(0, 0x8000), None);
    assert_eq!(largest(0x1_0000, 0x8000), None);
    assert_eq!(largest(!0xfff, 0x800), None);
    // Lengths have 32 bits.
    assert_eq!(largest(1 << 32, 1 << 40), None);
    assert!(!has(0x3000, 0x3000) && !has(0x1000, 0) && has(0x3000, 0x2000));
}
