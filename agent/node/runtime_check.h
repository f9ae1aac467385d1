// SPDX-License-Identifier: Apache-2.0
// Checks that NVIDIA's container runtime keeps devices out of tenants: it gives devices to any pod that sets an
// environment variable, unless its configuration forbids that for unprivileged containers. Pure except that it reads
// that file; safe from any thread. docs/installation.md says how to configure the runtime.
#pragma once

#include <string>

namespace gpuloom {

// The key that the configuration must set to false, at its top level.
inline constexpr char kRuntimeKey[] = "accept-nvidia-visible-devices-envvar-when-unprivileged";

enum class RuntimeConfig { kMissing, kForbids, kAllows };
RuntimeConfig ReadRuntimeConfig(const std::string& path);

// A warning of one line; empty when the configuration forbids it, or when there is no such runtime.
std::string CheckNvidiaRuntime(const std::string& config_path);

}  // namespace gpuloom
