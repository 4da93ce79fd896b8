// SPDX-License-Identifier: GPL-2.0

//! time: being written.
