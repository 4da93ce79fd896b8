// SPDX-License-Identifier: GPL-2.0

//! rcu: being written.
