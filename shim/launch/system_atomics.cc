// SPDX-License-Identifier: Apache-2.0
#include "shim/launch/system_atomics.h"

#include <atomic>

#include "shim/memory/memory.h"
#include "shim/process/log.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

constinit std::atomic<bool> told{false};

// An attribute that the node's driver did not report is negative.
bool LinkHasAtomics() {
  return session.device().attributes[CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED] > 0;
}

}  // namespace

void ReportSystemAtomics(const Kernel& kernel) {
  if (told.load(std::memory_order_relaxed) || LinkHasAtomics() || !AnyManagedInHostMemory() ||
      told.exchange(true)) {
    return;
  }
  Log(LogLevel::kWarn,
      "kernel %.300s has atomic operations of the system's scope, and managed memory of this "
      "program is in host memory, where they are atomic for the device alone: if host threads "
      "change the same words while it runs, updates are lost; give each side words of its own, or "
      "keep them in memory of cudaMalloc (said once)",
      kernel.name);
}

}  // namespace gpuloom
