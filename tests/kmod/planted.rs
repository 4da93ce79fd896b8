// SPDX-License-Identifier: GPL-2.0

//! Faults on purpose: each is one that a checker of the debug kernel has to find.
//!
//! `tests/planted-bugs.sh` makes them, and `tests/all.sh` wants to see them in what the runner says.
//! A run in which they go unnoticed proves nothing by being clean.

use core::mem::forget;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// Makes the fault that is named so.
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
    // SAFETY: None: reading what was freed is the fault. The page stays mapped, as it is one of the
    // slab's, so that nothing but the checker notices.
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

/// For lockdep: two locks in both orders. One task alone cannot hang by it.
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

/// For kmemleak. Many, as it takes any word of a stack that looks like an address for a reference, also
/// what a function that returned long ago has left there.
fn leak() -> Result {
    for _ in 0..64 {
        forget(KBox::new([0u8; 4000], GFP_KERNEL)?);
    }
    Ok(())
}
