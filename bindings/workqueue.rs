// SPDX-License-Identifier: GPL-2.0

//! workqueue: being written.
