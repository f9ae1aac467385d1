// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node, wherever they are found. Called from one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/inventory/nvml.h"
#include "agent/node/pci.h"

namespace gpuloom {

// From the CUDA library, when one is named; else from NVML. Fails as nvml.h and cuda_library.h say,
// and NotFound when there is none.
absl::StatusOr<GpuList> ListGpus(const std::string& cuda_library,
                                 const std::string& nvml_library = kNvmlLibrary);

struct Inventory {
  // By their numbers, those that cannot be used now included.
  std::vector<Gpu> gpus;
  // Of those: by UUID, why they cannot be used. They are sick until they can.
  std::map<std::string, std::string> faults;
  // What else was found: GPUs that cannot even be named, or why there are none; and the next step. One line.
  std::string trouble;
  // The node has an NVIDIA GPU that cannot be used and is not in the list: which must be repaired.
  bool is_unusable = false;
};

struct InventorySources {
  std::string cuda_library;
  std::string state_directory;  // whose folders say which GPUs were here before, and what they are
  std::set<std::string> held;   // GPUs that containers hold
  std::string nvml_library = kNvmlLibrary;
  std::string pci_devices = kPciDevices;
};

// Like ListGpus, for a node that may have no GPU, none yet, or one that is broken: that one keeps its place, its UUID and with
// it what the kubelet has allocated, if the state knows it, and the others do not hear of it. What the driver does not list at
// all keeps its place while somebody holds it, or misses it: it was sick, is not drained, and no new one is in its place. Else
// it was taken out. Fails only when a CUDA library is named and cannot
// be used: that is the operator's own choice of GPUs.
absl::StatusOr<Inventory> TakeInventory(const InventorySources& sources);

// The same with what the driver has said elsewhere, or why it has not.
absl::StatusOr<Inventory> MakeInventory(absl::StatusOr<GpuList> list,
                                        const InventorySources& sources);

}  // namespace gpuloom
