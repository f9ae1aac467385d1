// SPDX-License-Identifier: Apache-2.0
// What the agent has the kubelet give to a container with slots. Pure; safe from any thread.
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
  std::vector<std::string> devices;  // device nodes, at the same path in the container
};

// The device through which the kernel reports a process's own page faults to it. Without it managed memory stays in
// host memory.
inline constexpr char kPageFaultDevice[] = "/dev/userfaultfd";

// `directory` is the allocation's. `tells_page_faults`: the container gets kPageFaultDevice.
ContainerSetup MakeContainerSetup(const std::string& directory, const LibraryFiles& libraries,
                                  const ShimStore& shims, bool tells_page_faults);

}  // namespace gpuloom
