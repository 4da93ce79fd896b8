// SPDX-License-Identifier: GPL-2.0

//! errno: being written.
