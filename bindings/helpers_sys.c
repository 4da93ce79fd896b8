// SPDX-License-Identifier: GPL-2.0
#include "helpers_sys.h"
