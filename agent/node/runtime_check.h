// SPDX-License-Identifier: Apache-2.0
// "No device in the tenant" rests on the node: NVIDIA's container runtime hands devices to any pod
// that sets an environment variable, unless its configuration forbids that for unprivileged
// containers. Pure but for reading the one file; docs/installation.md says how to set it.
#pragma once

#include <string>

namespace gpuloom {

// What the configuration must say, at its top level.
inline constexpr char kRuntimeKey[] = "accept-nvidia-visible-devices-envvar-when-unprivileged";

enum class RuntimeConfig { kMissing, kForbids, kAllows };
RuntimeConfig ReadRuntimeConfig(const std::string& path);

// One line to warn with; empty when the configuration forbids it, or when there is no such runtime.
std::string CheckNvidiaRuntime(const std::string& config_path);

}  // namespace gpuloom
