// SPDX-License-Identifier: GPL-2.0

//! Addresses and keys that cannot be guessed.

// There is no kernel here that could be brought down.
#![cfg(not(loom))]

use rtrs_bindings::hidden::{address, next_key, KeySteps};

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

/// The part of a key that never changes.
const REST: u32 = 0x1234_5600;

#[test]
fn a_key_changes_each_time() {
    for random in [0, u64::MAX, 0x0101_0101_0101_0101] {
        let mut steps = KeySteps::new(random);
        let mut key = REST;
        for _ in 0..1000 {
            let old = key;
            key = old ^ steps.next(|| random);
            assert_ne!(key, old);
            assert_eq!(key & !0xff, REST);
        }
    }
}

#[test]
fn one_number_makes_eight_steps() {
    let mut asked = 0;
    let mut steps = KeySteps::new(0x8877_6655_4433_2211);
    for _ in 0..8 + 8 * 10 {
        steps.next(|| {
            asked += 1;
            0x8877_6655_4433_2211
        });
    }
    assert_eq!(asked, 10);
}

#[test]
fn a_byte_that_is_no_step_is_replaced() {
    // The steps are 1, 0, 2 and 3.
    let mut steps = KeySteps::new(0x0302_0001);
    assert_eq!(steps.next(|| unreachable!()), 1);
    assert_eq!(steps.next(|| 254), 255);
    assert_eq!(steps.next(|| unreachable!()), 2);
    assert_eq!(steps.next(|| unreachable!()), 3);
}

#[test]
fn the_next_key_is_any_other() {
    let mut next = numbers(7);
    let mut steps = KeySteps::new(next());
    let mut counts = [0u32; 256];
    for _ in 0..255 * 1000 {
        counts[steps.next(&mut next) as usize] += 1;
    }
    assert_eq!(counts[0], 0);
    // 1000 each, give or take six times the deviation that chance explains.
    assert!(
        counts[1..].iter().all(|n| (810..1190).contains(n)),
        "{counts:?}"
    );
}

#[test]
fn a_byte_that_changes_nothing_is_drawn_again() {
    // All new steps are 0.
    for again in [0, 1, 253, 254, 255, 256, u64::MAX] {
        let mut numbers = [0, again].into_iter();
        let step = KeySteps::new(0).next(|| numbers.next().unwrap());
        assert_eq!(u64::from(step), again % 255 + 1);
    }
}

#[test]
fn a_counted_key_follows_the_last_one() {
    let mut key = REST | 0xfe;
    for byte in [0xff, 0, 1, 2] {
        key = next_key(key);
        assert_eq!(key, REST | byte);
    }
}
