// SPDX-License-Identifier: GPL-2.0

//! The limits of what loom explores.

/// Runs `f` with all interleavings in which threads are preempted at most three times.
pub(crate) fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}
