// SPDX-License-Identifier: Apache-2.0
// What a container with slots is given by the kubelet, in the agent's name. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/identity/allocation.h"
#include "agent/plugin/shim_store.h"

namespace gpuloom {

struct MountSetup {
  std::string container_path;
  std::string host_path;  // always mounted read-only
};

struct ContainerSetup {
  std::map<std::string, std::string> envs;
  std::vector<MountSetup> mounts;    // the allocation's directory first
  std::vector<std::string> devices;  // of the node, at the same path
};

// By which the kernel tells a process of its own page faults. Without it managed memory stays in host memory.
inline constexpr char kPageFaultDevice[] = "/dev/userfaultfd";

// `directory` is the allocation's.
ContainerSetup MakeContainerSetup(const std::string& directory, const LibraryFiles& libraries,
                                  const ShimStore& shims, bool tells_page_faults);

}  // namespace gpuloom
