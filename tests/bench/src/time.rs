// SPDX-License-Identifier: GPL-2.0

//! Times that fio measured by the clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Several measurements of the same value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Figure {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: values[values.len().checked_sub(1)? / 2],
            least: *values.first()?,
            most: *values.last()?,
        })
    }
}

/// One kind of request on one stack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Time {
    /// "SIZE DIRECTION AI CPUS DEPTH".
    pub row: String,
    /// "rust", "c" or "nvme".
    pub stack: String,
    /// Requests per second.
    pub iops: Figure,
    /// Latencies in microseconds: median, 99 %, 99.9 %.
    pub latency: [Figure; 3],
}

/// A mean of differences, in percent, and half of its 95 % interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The mean.
    pub mean: f64,
    /// The interval ends this far from it.
    pub half: f64,
}

/// The 97.5 % quantiles of Student's distribution, for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Difference {
    /// `None` for fewer than two values.
    fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let free = values.len().checked_sub(1).filter(|&free| free > 0)?;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / free as f64;
        let student = STUDENT.get(free - 1).copied().unwrap_or(1.96);
        Some(Self {
            mean,
            half: student * (square / n).sqrt(),
        })
    }

    /// Whether the interval has 0 in it: the difference may be none.
    pub fn is_open(&self) -> bool {
        self.mean.abs() <= self.half
    }
}

/// Our modules against another stack: requests of one kind, measured in the same turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// "SIZE DIRECTION CPUS DEPTH".
    pub row: String,
    /// The other stack.
    pub against: String,
    /// Number of turns.
    pub turns: usize,
    /// How much more ours has: requests per second, and latencies as in [`Time`].
    pub more: [Difference; 4],
}

/// The percentiles, as fio names them.
const PERCENTILES: [&str; 3] = ["50.000000", "99.000000", "99.900000"];

/// What was measured in one turn of a guest: the figures, by stack.
type Turn = BTreeMap<String, [f64; 4]>;

/// Reads the results of guests, in which all stacks measure the same, one after the other.
pub fn read(dirs: &[PathBuf]) -> Result<(Vec<Time>, Vec<Pair>)> {
    let mut samples: BTreeMap<(String, String), Vec<[f64; 4]>> = BTreeMap::new();
    let mut turns: BTreeMap<String, BTreeMap<(usize, String), Turn>> = BTreeMap::new();
    for (guest, dir) in dirs.iter().enumerate() {
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let Some(name) = name.strip_prefix("fio.") else {
                continue;
            };
            let [stack, size, direction, ai, cpus, depth, turn] =
                name.split('.').collect::<Vec<_>>()[..]
            else {
                bail!("bad name of a file: {name}");
            };
            let sample =
                sample(&path, direction).with_context(|| format!("in {}", path.display()))?;
            let row = format!("{size} {direction} {ai} {cpus} {depth}");
            let key = (row, stack.to_owned());
            samples.entry(key).or_default().push(sample);
            turns
                .entry(format!("{size} {direction} {cpus} {depth}"))
                .or_default()
                .entry((guest, turn.to_owned()))
                .or_default()
                .insert(stack.to_owned(), sample);
        }
    }
    let times = samples
        .into_iter()
        .map(|((row, stack), samples)| {
            let figure = |n: usize| {
                Figure::of(samples.iter().map(|s| s[n]).collect()).context("no measurement")
            };
            Ok(Time {
                row,
                stack,
                iops: figure(0)?,
                latency: [figure(1)?, figure(2)?, figure(3)?],
            })
        })
        .collect::<Result<_>>()?;
    let pairs = turns
        .iter()
        .flat_map(|(row, turns)| ["c", "nvme"].map(|against| (row, against, turns)))
        .filter_map(|(row, against, turns)| pair(row, against, turns.values()))
        .collect();
    Ok((times, pairs))
}

/// `None` unless both were measured in several turns.
fn pair<'a>(row: &str, against: &str, turns: impl Iterator<Item = &'a Turn>) -> Option<Pair> {
    let both: Vec<_> = turns
        .filter_map(|turn| Some((turn.get("rust")?, turn.get(against)?)))
        .collect();
    let more = |n: usize| {
        let percent = |(ours, other): &(&[f64; 4], &[f64; 4])| 100.0 * (ours[n] / other[n] - 1.0);
        Difference::of(&both.iter().map(percent).collect::<Vec<_>>())
    };
    Some(Pair {
        row: row.to_owned(),
        against: against.to_owned(),
        turns: both.len(),
        more: [more(0)?, more(1)?, more(2)?, more(3)?],
    })
}

fn sample(path: &Path, direction: &str) -> Result<[f64; 4]> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let job = &json["jobs"][0][direction];
    let number = |value: &Value, what: &str| value.as_f64().with_context(|| format!("no {what}"));
    let percentile = |name: &str| {
        // Nanoseconds.
        number(&job["clat_ns"]["percentile"][name], name).map(|ns| ns / 1000.0)
    };
    Ok([
        number(&job["iops"], "IOPS")?,
        percentile(PERCENTILES[0])?,
        percentile(PERCENTILES[1])?,
        percentile(PERCENTILES[2])?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_spread() {
        let figure = Figure::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((figure.median, figure.least, figure.most), (2.0, 1.0, 3.0));
        assert!(Figure::of(Vec::new()).is_none());
    }

    #[test]
    fn the_interval_of_a_difference() {
        let difference = Difference::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((difference.mean - 3.0).abs() < 1e-9);
        // 2.776 * sqrt(2.5 / 5).
        assert!((difference.half - 1.963).abs() < 1e-3);
        assert!(!difference.is_open());
        assert!(Difference::of(&[-1.0, 2.0]).unwrap().is_open());
        assert!(Difference::of(&[1.0]).is_none());
    }

    #[test]
    fn pairs_are_of_the_same_turn() {
        let turn = |ours: Option<f64>, other: f64| {
            let ours = ours.map(|ours| ("rust".to_owned(), [ours; 4]));
            ours.into_iter()
                .chain([("c".to_owned(), [other; 4])])
                .collect::<Turn>()
        };
        let turns = [
            turn(Some(2.0), 1.0),
            turn(Some(20.0), 10.0),
            turn(None, 5.0),
        ];
        let both = pair("4k read 2 16", "c", turns.iter()).unwrap();
        assert_eq!(both.turns, 2);
        assert!((both.more[0].mean - 100.0).abs() < 1e-9);
        assert!(both.more[0].half < 1e-9);
        assert!(pair("4k read 2 16", "nvme", turns.iter()).is_none());
    }
}
