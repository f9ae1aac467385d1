// SPDX-License-Identifier: Apache-2.0
// The limit on this process's open descriptors. Called from main, before tenants connect.
#pragma once

namespace gpuloom::scheduler {

// Raises it to the hard limit. Sessions cost several descriptors each; the default soft limit of
// 1024 is for select(2), which nothing here uses. A limit that cannot be raised stays.
void RaiseDescriptorLimit();

}  // namespace gpuloom::scheduler
