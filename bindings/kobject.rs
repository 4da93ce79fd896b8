// SPDX-License-Identifier: GPL-2.0

//! kobject: being written.
