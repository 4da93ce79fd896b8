// SPDX-License-Identifier: GPL-2.0

//! percpu_ref: being written.
