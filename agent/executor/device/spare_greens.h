// SPDX-License-Identifier: Apache-2.0
// Green contexts that are not in use. The driver never gives back the 4 MiB of device memory that each
// took when it was made, whatever is destroyed (measured; docs/design/green-contexts.md). So none is
// destroyed: who asks for the same part of the device is given one that is there.
//
// A session keeps what it has let go of, and stays charged for it, as natively; when it ends the next
// session may have it, and is charged. A context that nobody uses holds nothing of anybody: its streams
// are destroyed.
//
// SpareGreens is the executor's and outlives all sessions; SessionGreens is shared by a session and
// its contexts. Ring thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

// Of all sessions together, ever: 1 GiB. As many different parts as that no honest program asks for.
inline constexpr uint32_t kMaxMadeGreens = 256;
// For one tenant. The last so many are for tenants for which few were made.
inline constexpr uint32_t kMaxMadeOfTenant = 64;
inline constexpr uint32_t kKeptForFew = 64;
inline constexpr uint32_t kFewMade = 8;

struct MadeGreen {
  CUgreenCtx context = nullptr;
  CUdevResource has{};
};

class SpareGreens {
 public:
  // `key` says which part of the device it is. False: there is none.
  bool Take(const std::string& key, MadeGreen* made);
  void Give(const std::string& key, const MadeGreen& made) { spare_.emplace(key, made); }

  // One more will be made for this tenant; false when it may have no more made, now or ever.
  bool Count(const std::string& tenant);
  void Discount(const std::string& tenant);

 private:
  std::multimap<std::string, MadeGreen> spare_;
  uint32_t made_ = 0;
  std::map<std::string, uint32_t> made_of_;  // by tenant: as many as were made, at the most
};

class SessionGreens {
 public:
  using GiveBack = std::function<void()>;  // of the charge

  explicit SessionGreens(SpareGreens* spare) : spare_(spare) {}
  SessionGreens(const SessionGreens&) = delete;
  SessionGreens& operator=(const SessionGreens&) = delete;
  ~SessionGreens() { GiveAll(); }

  bool Has(const std::string& key) const { return kept_.count(key) != 0; }
  bool Take(const std::string& key, MadeGreen* made, GiveBack* give_back);
  void Keep(const std::string& key, const MadeGreen& made, GiveBack give_back);
  // The session ends.
  void GiveAll();

  uint64_t kept() const { return kept_.size(); }

 private:
  struct Kept {
    MadeGreen made;
    GiveBack give_back;
  };
  SpareGreens* const spare_;
  std::multimap<std::string, Kept> kept_;
};

}  // namespace gpuloom::executor
