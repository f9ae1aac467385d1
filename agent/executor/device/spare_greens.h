// SPDX-License-Identifier: Apache-2.0
// Unused green contexts. The driver never releases the 4 MiB of device memory that each took when
// it was created, whatever is destroyed (measured; docs/design/green-contexts.md). So none is
// destroyed: a request for the same part of the device gets an existing one.
//
// A session keeps contexts that it has released, and stays charged for them, as it would natively; when it ends, the
// next session may take them, and is charged. An unused context holds no session's data: its streams are destroyed.
//
// SpareGreens belongs to the executor and outlives all sessions; SessionGreens is shared by a
// session and its contexts. Ring thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/executor/device/device_charge.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

// Over all sessions and the executor's lifetime: 1 GiB. No honest program asks for that many different parts.
inline constexpr uint32_t kMaxMadeGreens = 256;
// Per tenant. The last kKeptForFew are reserved for tenants that have caused few to be created.
inline constexpr uint32_t kMaxMadeOfTenant = 64;
inline constexpr uint32_t kKeptForFew = 64;
inline constexpr uint32_t kFewMade = 8;

struct MadeGreen {
  CUgreenCtx context = nullptr;
  CUcontext converted = nullptr;  // the same as a CUcontext, which nodes of graphs need
  CUdevResource has{};
};

class SpareGreens {
 public:
  // `key` identifies the part of the device. Returns false if there is no unused one.
  bool Take(const std::string& key, MadeGreen* made);
  void Give(const std::string& key, const MadeGreen& made) { spare_.emplace(key, made); }

  // Counts one more to be created for this tenant. Returns false if the tenant may have no more created, ever.
  bool Count(const std::string& tenant);
  void Discount(const std::string& tenant);

 private:
  std::multimap<std::string, MadeGreen> spare_;
  uint32_t made_ = 0;
  std::map<std::string, uint32_t> made_of_;  // by tenant: at most how many were created
};

class SessionGreens {
 public:
  explicit SessionGreens(SpareGreens* spare) : spare_(spare) {}
  SessionGreens(const SessionGreens&) = delete;
  SessionGreens& operator=(const SessionGreens&) = delete;
  ~SessionGreens() { GiveAll(); }

  bool Has(const std::string& key) const { return kept_.count(key) != 0; }
  bool Take(const std::string& key, MadeGreen* made, DeviceChargeRef* charge);
  void Keep(const std::string& key, const MadeGreen& made, DeviceChargeRef charge);
  // Call when the session ends.
  void GiveAll();

  uint64_t kept() const { return kept_.size(); }

 private:
  struct Kept {
    MadeGreen made;
    DeviceChargeRef charge;
  };
  SpareGreens* const spare_;
  std::multimap<std::string, Kept> kept_;
};

}  // namespace gpuloom::executor
