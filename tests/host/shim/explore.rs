// SPDX-License-Identifier: GPL-2.0

//! How far loom goes.

/// Runs `f` with all interleavings in which threads are preempted three times at most.
pub(crate) fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}
