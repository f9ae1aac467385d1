// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/chores.h"

#include "agent/executor/session/slice.h"

namespace gpuloom::executor {

bool Chores::RunWaiting(Slice* slice) {
  do {
    if (!waiting_.front()()) continue;
    waiting_.pop_front();
  } while (!waiting_.empty() && !slice->Over());
  return true;
}

}  // namespace gpuloom::executor
