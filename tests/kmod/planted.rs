// SPDX-License-Identifier: GPL-2.0

//! Deliberate faults: a checker of the debug kernel has to find each of them.
//!
//! `tests/planted-bugs.sh` makes them, and `tests/all.sh` checks that the runner reports them. If
//! they go unnoticed, a clean run proves nothing.

use core::mem::forget;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// Makes the fault with this name.
///
/// # Errors
///
/// `EINVAL`: there is no such fault.
pub(crate) fn plant(what: &str) -> Result {
    match what {
        "use-after-free" => use_after_free(),
        "inversion" => inversion(),
        "leak" => leak(),
        _ => Err(EINVAL),
    }
}

/// For KASAN.
fn use_after_free() -> Result {
    let kept = KBox::into_raw(KBox::new([0u8; 64], GFP_KERNEL)?);
    // SAFETY: `kept` comes from `into_raw()` and is not used as a box again.
    drop(unsafe { KBox::from_raw(kept) });
    // SAFETY: None: reading freed memory is the fault. The page stays mapped, as it belongs to the
    // slab, so that only the checker notices.
    let byte = unsafe { kept.cast::<u8>().read_volatile() };
    pr_info!("read {} from freed memory\n", byte);
    Ok(())
}

#[pin_data]
struct Two {
    #[pin]
    a: SpinLock<()>,
    #[pin]
    b: SpinLock<()>,
}

/// For lockdep: takes two locks in both orders. A single task cannot deadlock that way.
fn inversion() -> Result {
    let two = KBox::pin_init(
        pin_init!(Two {
            a <- new_spinlock!((), "rtrs_test_planted_a"),
            b <- new_spinlock!((), "rtrs_test_planted_b"),
        }),
        GFP_KERNEL,
    )?;
    {
        let _a = two.a.lock();
        let _b = two.b.lock();
    }
    let _b = two.b.lock();
    let _a = two.a.lock();
    Ok(())
}

/// For kmemleak. There are many objects, as it takes any word of a stack that looks like an address
/// for a reference, even one that a finished function has left there.
fn leak() -> Result {
    for _ in 0..64 {
        forget(KBox::new([0u8; 4000], GFP_KERNEL)?);
    }
    Ok(())
}
