// SPDX-License-Identifier: GPL-2.0

//! lock: being written.
