// SPDX-License-Identifier: GPL-2.0

//! pages: being written.
