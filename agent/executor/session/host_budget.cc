// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/host_budget.h"

#include <algorithm>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// Rounded up, so that a small request does not read as nothing.
std::string Mib(uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

}  // namespace

uint64_t DomainBudget::held_bytes() const {
  const MutexLock lock(mutex_);
  return held_bytes_;
}

uint64_t DomainBudget::most_bytes() const {
  const MutexLock lock(mutex_);
  return most_bytes_;
}

// Both limits are checked under the domain's lock before either is touched. Subtracted, not added:
// `bytes` may be any number that a tenant has sent.
bool SessionBudget::Take(uint64_t bytes) {
  const MutexLock lock(domain_->mutex_);
  if (bytes > limit_bytes_ - held_bytes_) return false;
  const uint64_t more_shared = Shared(held_bytes_ + bytes) - Shared(held_bytes_);
  // A request that needs none of the shared part is granted, whatever the domain holds already.
  if (more_shared != 0 && (domain_->shared_bytes_ > domain_->limit_bytes_ ||
                           more_shared > domain_->limit_bytes_ - domain_->shared_bytes_)) {
    return false;
  }
  held_bytes_ += bytes;
  domain_->shared_bytes_ += more_shared;
  domain_->held_bytes_ += bytes;
  domain_->most_bytes_ = std::max(domain_->most_bytes_, domain_->held_bytes_);
  return true;
}

void SessionBudget::Give(uint64_t bytes) {
  const MutexLock lock(domain_->mutex_);
  // A mistake of ours must not make the domain's count wrap around.
  bytes = std::min(bytes, held_bytes_);
  domain_->shared_bytes_ -= Shared(held_bytes_) - Shared(held_bytes_ - bytes);
  domain_->held_bytes_ -= bytes;
  held_bytes_ -= bytes;
}

uint64_t SessionBudget::held_bytes() const {
  const MutexLock lock(domain_->mutex_);
  return held_bytes_;
}

std::string SessionBudget::Refusal(uint64_t bytes) const {
  const MutexLock lock(domain_->mutex_);
  return "gpuloom: this takes " + Mib(bytes) + " of the node's memory; this process holds " +
         Mib(held_bytes_) + " of " + Mib(limit_bytes_) + ", its trust domain " +
         Mib(domain_->held_bytes_) + " of " + Mib(domain_->limit_bytes_) +
         ": unload what is not needed, or have the node's operator raise --executor-memory";
}

}  // namespace gpuloom::executor
