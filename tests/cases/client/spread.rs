// SPDX-License-Identifier: GPL-2.0

//! Which connection the request of a permit uses.

use rtrs_client::logic::spread::Spread;

fn con(spread: Spread, id: u16, cpu: u32) -> u16 {
    spread.con(spread.own(id), id, cpu)
}

fn a_word_for_each_cpu() {
    let word = usize::BITS as u16;
    let four = Spread::new(4, 4 * word);
    for cpu in 0..4u16 {
        // Its own permits, and those of others.
        assert_eq!(con(four, cpu * word, cpu.into()), cpu + 1);
        assert_eq!(con(four, cpu * word + word - 1, cpu.into()), cpu + 1);
        assert_eq!(con(four, cpu * word, u32::from(cpu) + 1), cpu + 1);
    }
    assert_eq!(four.most(), word.into());
}

fn more_words_than_cpus() {
    let word = usize::BITS as u16;
    let two = Spread::new(2, 5 * word);
    // The words take turns.
    for (nth, want) in [1, 2, 1, 2, 1].into_iter().enumerate() {
        assert_eq!(con(two, nth as u16 * word, 0), want);
        assert_eq!(con(two, nth as u16 * word, 1), want);
    }
    assert_eq!(two.most(), 3 * u32::from(word));
    assert_eq!(Spread::new(1, 5 * word).most(), 5 * u32::from(word));
}

fn more_cpus_than_words() {
    let word = usize::BITS as u16;
    let eight = Spread::new(8, 2 * word);
    // Four CPUs share a word, and each has its own connection.
    for cpu in 0..8u16 {
        assert_eq!(con(eight, cpu % 2 * word, cpu.into()), cpu + 1);
    }
    // A permit of the other word.
    assert_eq!(con(eight, word, 6), 2);
    assert_eq!(con(eight, 0, 7), 1);
    // A CPU that came later.
    assert_eq!(con(eight, 0, 8), 1);
    assert_eq!(eight.most(), word.into());
}

fn few_permits() {
    let one = Spread::new(4, 1);
    assert_eq!(con(one, 0, 0), 1);
    assert_eq!(con(one, 0, 3), 4);
    assert_eq!(con(one, 0, u32::MAX), 1);
    assert_eq!(one.most(), usize::BITS);
}

cases!(
    rtrs_client_spread:
    a_word_for_each_cpu,
    more_words_than_cpus,
    more_cpus_than_words,
    few_permits,
);
