// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/context_memory.h"

#include <algorithm>
#include <utility>

namespace gpuloom::executor {

// Only growth beyond the highest value so far costs anything: whoever raised it has paid for the
// rest.
uint64_t ContextMemory::PriceOf(Kind kind, uint64_t value) const {
  const uint64_t highest = highest_[static_cast<size_t>(kind)];
  const uint64_t more = value - std::min(value, highest);
  return kind == Kind::kThread ? more * threads_ : more;
}

// Two tenants may have been charged for the same growth, each before the other's was known; both
// stay charged.
void ContextMemory::Raise(Kind kind, uint64_t value, DeviceChargeRef charge) {
  uint64_t& highest = highest_[static_cast<size_t>(kind)];
  highest = std::max(highest, value);
  if (charge != nullptr) charges_.push_back(std::move(charge));
}

CUresult RaiseLimit(const Driver& cuda, CUlimit limit, size_t value) {
  size_t have = 0;
  const CUresult result = cuda.cuCtxGetLimit(&have, limit);
  if (result != CUDA_SUCCESS || have >= value) return result;
  return cuda.cuCtxSetLimit(limit, value);
}

}  // namespace gpuloom::executor
