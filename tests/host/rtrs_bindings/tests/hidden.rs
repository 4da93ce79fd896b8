// SPDX-License-Identifier: GPL-2.0

//! Addresses and keys that cannot be guessed.

// There is no kernel here that could be brought down.
#![cfg(not(loom))]

use rtrs_bindings::hidden::{address, counted, KeyStep};

/// Numbers without an obvious order, the same ones each time.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn addresses_begin_pages_and_are_never_zero() {
    let mut next = numbers(1);
    for order in 12..32 {
        let page = 1u32 << order;
        for random in [0, u64::MAX, next(), next()] {
            let at = address(random, page);
            assert_eq!(at % u64::from(page), 0);
            assert_eq!(at >> 51, 1, "{at:x}");
        }
    }
    assert_eq!(address(0x0123_4567_89ab_cdef, 4096), 0x000b_4567_89ab_c000);
}

#[test]
fn all_of_a_number_that_fits_is_in_the_address() {
    for bit in 12..51 {
        assert_ne!(address(0, 4096), address(1 << bit, 4096));
    }
}

#[test]
fn a_key_comes_again_after_all_others() {
    let mut next = numbers(7);
    for random in (0..200).chain([u64::MAX]).chain((0..100).map(|_| next())) {
        let step = KeyStep::new(random);
        let first = 0xabcd_ef00 | (random as u32 & 0xff);
        let mut seen = [false; 256];
        let mut key = first;
        for _ in 0..256 {
            assert_eq!(key >> 8, first >> 8);
            assert!(!core::mem::replace(&mut seen[key as usize & 0xff], true));
            key = step.after(key);
        }
        assert_eq!(key, first);
    }
}

#[test]
fn steps_are_not_that_of_a_peer_that_counts() {
    let mut steps = std::collections::BTreeSet::new();
    for random in 0..1000 {
        let step = KeyStep::new(random).after(0);
        assert!((3..=253).contains(&step), "{step}");
        steps.insert(step);
    }
    assert_eq!(steps.len(), 126);
}

#[test]
fn a_counted_key_follows_the_last_one() {
    assert_eq!(counted(0x1234_5678), 0x1234_5679);
    assert_eq!(counted(0x1234_56ff), 0x1234_5600);
    assert_eq!(counted(u32::MAX), 0xffff_ff00);
}
