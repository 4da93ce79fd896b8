// SPDX-License-Identifier: GPL-2.0

//! class: being written.
