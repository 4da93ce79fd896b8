// SPDX-License-Identifier: GPL-2.0

//! Times that fio measured by the clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
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
    /// "SIZE DIRECTION AI CPUS".
    pub row: String,
    /// "rust", "c" or "nvme".
    pub stack: String,
    /// Requests per second.
    pub iops: Figure,
    /// Latencies in microseconds: median, 99 %, 99.9 %.
    pub latency: [Figure; 3],
}

/// The percentiles, as fio names them.
const PERCENTILES: [&str; 3] = ["50.000000", "99.000000", "99.900000"];

/// Reads the results of guests, several of which measure the same, one after the other.
pub fn read(dirs: &[PathBuf]) -> Result<Vec<Time>> {
    let mut samples: BTreeMap<(String, String), Vec<[f64; 4]>> = BTreeMap::new();
    for dir in dirs {
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let Some(name) = name.strip_prefix("fio-") else {
                continue;
            };
            let (stack, row) = name.split_once('-').context("bad name of a file")?;
            let direction = row.split('-').nth(1).context("bad name of a file")?;
            let sample =
                sample(&path, direction).with_context(|| format!("in {}", path.display()))?;
            let key = (row.replace('-', " "), stack.to_owned());
            samples.entry(key).or_default().push(sample);
        }
    }
    samples
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
        .collect()
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
}
