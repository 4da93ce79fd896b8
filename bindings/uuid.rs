// SPDX-License-Identifier: GPL-2.0

//! uuid: being written.
