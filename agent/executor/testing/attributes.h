// SPDX-License-Identifier: Apache-2.0
// TestingDriver's attributes of kernels. For its own parts only.
#pragma once

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

void FillAttributeTable(Driver* d);

}  // namespace gpuloom::executor
