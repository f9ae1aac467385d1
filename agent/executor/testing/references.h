// SPDX-License-Identifier: Apache-2.0
// TestingDriver's texture and surface references. Libraries have "texture", "other" and "surface";
// calls to the driver are recorded in a separate list.
#pragma once

#include <string>
#include <vector>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Adds its functions to the table.
void FillReferenceTable(Driver* driver);
// Forgets the recorded calls, and what is refused.
void ForgetReferences();

// "texture flags 2", "texture array 17", "texture address 4096 240", "texture none",
// "texture rows 4096 32", "surface array 17", "surface none".
std::vector<std::string> TakeReferenceCalls();

// Binding returns this from now on.
void RefuseBinding(CUresult result);

}  // namespace gpuloom::executor
