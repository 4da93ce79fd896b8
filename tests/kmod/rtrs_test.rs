// SPDX-License-Identifier: GPL-2.0

//! rtrs-test: a user of the Rust API on both sides, for tests only.
//!
//! It makes requests that RNBD never makes, and answers requests in ways in which RNBD never does.
//! `/sys/kernel/debug/rtrs_test/` takes its commands; see [`control`].
//!
//! | module | noun |
//! |---|---|
//! | [`args`] | the words of a command |
//! | [`control`] | the files, the commands, and their objects: sessions, servers, results |
//! | [`pattern`] | contents that both sides know |
//! | [`order`] | the user message: the order to the server |
//! | [`store`] | the server's side: checks received bytes, makes the bytes to send |
//! | [`disk`] | the server's side of a disk: keeps what is written |
//! | [`door`] | a listening address at which requests to connect wait |
//! | [`answers`] | answers now, later, and from other contexts |
//! | [`plan`] | the parameters of a run of requests |
//! | [`run`] | a run of requests, and its statistics |
//! | [`slot`] | one request after the other, each checked |
//! | [`probes`] | single operations that must be refused |
//! | [`planted`] | faults that the kernel's checkers must find |

use kernel::{
    debugfs::Scope,
    prelude::*, //
};

mod answers;
mod args;
mod control;
mod disk;
mod door;
mod order;
mod pattern;
mod plan;
mod planted;
mod probes;
mod run;
mod slot;
mod store;

use control::Control;

module! {
    type: TestModule,
    name: "rtrs_test",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport tests",
    license: "GPL",
}

struct TestModule {
    /// Dropping it removes the files first, and waits for their users.
    _control: Pin<KBox<Scope<Control>>>,
}

impl kernel::Module for TestModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let scope = Scope::dir(Control::new(), c"rtrs_test", |control, dir| {
            dir.write_only_callback_file(c"command", control, &Control::command);
            dir.read_callback_file(c"result", control, &Control::show_results);
            dir.read_callback_file(c"stats", control, &Control::show_stats);
        });
        Ok(Self {
            _control: KBox::pin_init(scope, GFP_KERNEL)?,
        })
    }
}
