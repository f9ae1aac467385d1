// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/descriptor_limit.h"

#include <sys/resource.h>

namespace gpuloom::scheduler {

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gpuloom::scheduler
