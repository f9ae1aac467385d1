// SPDX-License-Identifier: Apache-2.0
// Converts a tenant's launch attributes to the driver's. The driver validates the values; only
// attributes that no shim sends are refused (KnowsAttributes). Safe from any thread.
#pragma once

#include <array>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/launch_commands.h"

namespace gpuloom::executor {

[[nodiscard]] bool KnowsAttributes(const wire::LaunchAttributes& attributes_untrusted);

// A launch configuration and the attributes it points to, for one call of the driver: made on the caller's stack, keeps
// nothing of its arguments. Neither copyable nor movable.
class LaunchConfig {
 public:
  LaunchConfig(const uint32_t (&grid)[3], const uint32_t (&block)[3], uint32_t dynamic_shared_bytes,
               CUstream stream, const wire::LaunchAttributes& attributes);
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  const CUlaunchConfig* get() const { return &config_; }

 private:
  CUlaunchAttributeValue& Add(CUlaunchAttributeID id);

  std::array<CUlaunchAttribute, 32> list_{};
  CUlaunchConfig config_{};
};

}  // namespace gpuloom::executor
