// SPDX-License-Identifier: GPL-2.0

//! A second chance for tests that were only late, and for guests that did not boot. Nothing is
//! hidden: earlier attempts stay in the results and in the summary, which allows few of them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context, Result};

use crate::report::{Attempt, TestResult, Verdict};

/// If more tests fail than this, the machine is not the reason.
const TESTS: usize = 6;

/// Number of further attempts, for one test and for all.
pub struct Chances {
    per_test: usize,
    tests: AtomicUsize,
    /// Running tests share it; a test that is run again has it, and the machine, to itself.
    machine: RwLock<()>,
}

impl Chances {
    /// Each test may be run `per_test` more times.
    pub fn new(per_test: usize) -> Self {
        Self {
            per_test,
            tests: AtomicUsize::new(TESTS),
            machine: RwLock::new(()),
        }
    }

    /// Runs a test, which leaves its files in `results`/`name`, until its result is certain or no
    /// attempt is left. Further attempts run alone: another test beside it may be the cause of the
    /// failure.
    pub fn run(
        &self,
        results: &Path,
        name: &str,
        mut test: impl FnMut() -> Result<TestResult>,
    ) -> Result<TestResult> {
        let dir = results.join(name);
        let mut earlier = Vec::new();
        loop {
            let mut result = if earlier.is_empty() {
                let _shared = self.machine.read().unwrap_or_else(PoisonError::into_inner);
                test()?
            } else {
                let _alone = self.machine.write().unwrap_or_else(PoisonError::into_inner);
                test()?
            };
            // A guest that never started its job says nothing about the job.
            let limit = match result.verdict {
                Verdict::Boot => self.per_test.max(1),
                _ => self.per_test,
            };
            if result.verdict.good()
                || !result.doubtful
                || earlier.len() >= limit
                || (earlier.is_empty() && !self.take())
            {
                result.earlier = earlier;
                result.write(&dir.join("result.json"))?;
                return Ok(result);
            }
            let kept = results.join(format!("{name}.{}", earlier.len() + 1));
            keep(&dir, &kept)?;
            println!("{name}: once more, as it was late, or did not boot");
            earlier.push(Attempt {
                verdict: result.verdict,
                failures: result.failures,
                late: result.late,
                host: result.host,
                kept: kept.display().to_string(),
            });
        }
    }

    fn take(&self) -> bool {
        self.tests
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
    }
}

/// Moves a test's files out of the way; `result.json` is the last attempt's.
fn keep(dir: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    fs::rename(dir, to).with_context(|| format!("cannot rename {}", dir.display()))?;
    fs::rename(to.join("result.json"), to.join("attempt.json"))
        .with_context(|| format!("no result in {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ktap::Counts;

    /// Runs a test that fails the given number of times.
    fn runs(chances: &Chances, failing: usize, doubtful: bool) -> (Verdict, usize, usize) {
        let results = tempfile::tempdir().unwrap();
        let dir = results.path().join("t");
        let mut n = 0;
        let result = chances
            .run(results.path(), "t", || {
                n += 1;
                fs::create_dir_all(&dir)?;
                let r = TestResult {
                    name: "t".into(),
                    verdict: if n <= failing {
                        Verdict::Fail
                    } else {
                        Verdict::Pass
                    },
                    doubtful,
                    ..TestResult::default()
                };
                r.write(&dir.join("result.json"))?;
                Ok(r)
            })
            .unwrap();
        for i in 1..n {
            assert!(results.path().join(format!("t.{i}/attempt.json")).exists());
        }
        let stored = TestResult::read(&dir.join("result.json")).unwrap();
        assert_eq!(stored.earlier.len(), result.earlier.len());
        assert_eq!(stored.counts, Counts::default());
        (result.verdict, n, result.earlier.len())
    }

    #[test]
    fn only_what_is_doubtful_is_run_again() {
        let c = Chances::new(2);
        assert_eq!(runs(&c, 0, true), (Verdict::Pass, 1, 0));
        assert_eq!(runs(&c, 1, true), (Verdict::Pass, 2, 1));
        assert_eq!(runs(&c, 2, true), (Verdict::Pass, 3, 2));
        assert_eq!(runs(&c, 3, true), (Verdict::Fail, 3, 2));
        assert_eq!(runs(&c, 1, false), (Verdict::Fail, 1, 0));
        assert_eq!(runs(&Chances::new(0), 1, true), (Verdict::Fail, 1, 0));
    }

    #[test]
    fn what_is_run_again_runs_alone() {
        let c = Chances::new(1);
        let running = AtomicUsize::new(0);
        let again = || {
            let results = tempfile::tempdir().unwrap();
            let dir = results.path().join("t");
            let mut n = 0;
            c.run(results.path(), "t", || {
                n += 1;
                running.fetch_add(1, Ordering::SeqCst);
                for _ in 0..20 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    assert!(n == 1 || running.load(Ordering::SeqCst) == 1);
                }
                running.fetch_sub(1, Ordering::SeqCst);
                fs::create_dir_all(&dir)?;
                let r = TestResult {
                    name: "t".into(),
                    verdict: Verdict::Fail,
                    doubtful: true,
                    ..TestResult::default()
                };
                r.write(&dir.join("result.json"))?;
                Ok(r)
            })
            .unwrap();
            assert_eq!(n, 2);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(again);
            }
        });
    }

    #[test]
    fn when_much_fails_it_is_not_the_machine() {
        let c = Chances::new(1);
        for _ in 0..TESTS {
            assert_eq!(runs(&c, 1, true).0, Verdict::Pass);
        }
        assert_eq!(runs(&c, 1, true), (Verdict::Fail, 1, 0));
    }
}
