// SPDX-License-Identifier: GPL-2.0

//! param: being written.
