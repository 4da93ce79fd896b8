// SPDX-License-Identifier: GPL-2.0

//! noio: being written.
