// SPDX-License-Identifier: Apache-2.0
// How many descriptors this process may have. Called from main, before tenants come.
#pragma once

namespace gpuloom::scheduler {

// To the hard limit. Sessions cost several descriptors each; the default soft limit of 1024 is for
// select(2), which nothing here uses. A limit that cannot be raised stays.
void RaiseDescriptorLimit();

}  // namespace gpuloom::scheduler
