// SPDX-License-Identifier: GPL-2.0

//! attribute: being written.
