// SPDX-License-Identifier: GPL-2.0

//! ratelimit: being written.
