// SPDX-License-Identifier: GPL-2.0

//! sbitmap: being written.
