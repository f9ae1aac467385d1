// SPDX-License-Identifier: Apache-2.0
// Limits for the host memory that the sessions of an executor may use in it: copies of what tenants send,
// what is made from them, and what the driver keeps of it, briefly or for long. Reserved before the memory
// is allocated; a session that gets none gets an error, and nothing is copied (docs/design/module-loading.md).
//
// A DomainBudget belongs to one executor. A SessionBudget is one session's part of it; it outlives the session
// while anything charged to it is held. A HostCharge covers one thing and is returned by its destructor.
// Budgets are safe from any thread, a HostCharge is used by one thread at a time. Sizes are bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class DomainBudget {
 public:
  // Nodes with GPUs have some hundred GiB; a quarter of this, one session's limit, is four times the largest image.
  static constexpr uint64_t kDefaultBytes = uint64_t{16} << 30;

  explicit DomainBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  DomainBudget(const DomainBudget&) = delete;
  DomainBudget& operator=(const DomainBudget&) = delete;

  uint64_t limit_bytes() const { return limit_bytes_; }
  // A quarter, so that a single session leaves room for its neighbours.
  uint64_t session_limit_bytes() const { return limit_bytes_ / 4; }
  uint64_t held_bytes() const;
  uint64_t most_bytes() const;  // highest held_bytes so far

 private:
  friend class SessionBudget;

  const uint64_t limit_bytes_;
  mutable Mutex mutex_;
  uint64_t held_bytes_ GPULOOM_GUARDED_BY(mutex_) = 0;
  uint64_t most_bytes_ GPULOOM_GUARDED_BY(mutex_) = 0;
  uint64_t shared_bytes_ GPULOOM_GUARDED_BY(mutex_) = 0;  // excluding what sessions are guaranteed
};

class SessionBudget {
 public:
  // What a session gets even if its neighbours hold everything else: enough for programs with a few
  // kernels of their own.
  static constexpr uint64_t kAssuredBytes = uint64_t{64} << 20;

  SessionBudget(std::shared_ptr<DomainBudget> domain, uint64_t limit_bytes)
      : domain_(std::move(domain)), limit_bytes_(limit_bytes) {}
  SessionBudget(const SessionBudget&) = delete;
  SessionBudget& operator=(const SessionBudget&) = delete;

  // Returns false, and takes nothing, if there is no room.
  [[nodiscard]] bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  uint64_t held_bytes() const;
  // A message for the tenant: why `bytes` were refused, and what can be done.
  std::string Refusal(uint64_t bytes) const;

 private:
  static uint64_t Shared(uint64_t bytes) {
    return bytes < kAssuredBytes ? 0 : bytes - kAssuredBytes;
  }

  const std::shared_ptr<DomainBudget> domain_;
  const uint64_t limit_bytes_;
  uint64_t held_bytes_ GPULOOM_GUARDED_BY(domain_->mutex_) = 0;
};

class HostCharge {
 public:
  explicit HostCharge(std::shared_ptr<SessionBudget> budget) : budget_(std::move(budget)) {}
  HostCharge(const HostCharge&) = delete;
  HostCharge& operator=(const HostCharge&) = delete;
  ~HostCharge() { ShrinkTo(0); }

  // If it returns false, it still holds what it held before.
  [[nodiscard]] bool Add(uint64_t bytes) {
    if (!budget_->Take(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  void ShrinkTo(uint64_t bytes) {
    if (bytes >= bytes_) return;
    budget_->Give(bytes_ - bytes);
    bytes_ = bytes;
  }
  uint64_t bytes() const { return bytes_; }
  std::string Refusal(uint64_t bytes) const { return budget_->Refusal(bytes); }

 private:
  const std::shared_ptr<SessionBudget> budget_;
  uint64_t bytes_ = 0;
};

}  // namespace gpuloom::executor
