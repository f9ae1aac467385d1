// SPDX-License-Identifier: Apache-2.0
// The limit on this process's open descriptors. Called from main, before tenants connect.
#pragma once

namespace gpuloom::scheduler {

// Raises it to the hard limit; if that fails, the limit stays as it is. A session costs several
// descriptors, and the default soft limit of 1024 only serves select(2), which nothing here uses.
void RaiseDescriptorLimit();

}  // namespace gpuloom::scheduler
