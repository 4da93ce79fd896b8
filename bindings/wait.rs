// SPDX-License-Identifier: GPL-2.0

//! wait: being written.
