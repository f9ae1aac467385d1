// SPDX-License-Identifier: Apache-2.0
// What the agent shows: to the kubelet, the devices of each resource (every slot of every GPU, and for each shape every
// place that a GPU has for it), which are healthy while they can be given; to readiness probes, what the operator must
// mend. Streams of ListAndWatch wait here for changes. Owned by NodeAgent. Safe from any thread; nothing fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/inventory/gpu.h"
#include "agent/node/gpu_standing.h"
#include "agent/plugin/slot_use.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

struct ShownDevice {
  std::string id;
  bool is_healthy = false;
  int numa_node = -1;
  bool operator==(const ShownDevice&) const = default;
};

class DeviceBoard {
 public:
  // `shapes`: the shapes that are offered besides single slots, in slots.
  DeviceBoard(std::vector<Gpu> gpus, int slots_per_gpu, std::vector<int> shapes = {});

  // Devices of a healthy GPU can be given, except those for which its use leaves no room.
  void Show(const std::string& gpu_uuid, const GpuStanding& standing);
  void ShowUse(const std::string& gpu_uuid, const SlotUse& use);
  GpuStanding StandingOf(const std::string& gpu_uuid) const;
  // Empty: nothing is wrong.
  void SetTrouble(const std::string& trouble);
  std::string Trouble() const;
  // The devices of a shape (1: single slots), and the version of what is shown.
  std::vector<ShownDevice> Devices(int shape, uint64_t* version) const;
  // Blocks until the version has changed or the time is over. Returns whether it has changed.
  bool WaitForChange(uint64_t version, std::chrono::milliseconds timeout) const;

 private:
  const std::vector<Gpu> gpus_;
  const int slots_per_gpu_;
  const std::vector<int> shapes_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t version_ GPULOOM_GUARDED_BY(mutex_) = 1;
  struct Shown {
    GpuStanding standing;
    std::set<int> closed;                 // single slots
    std::map<int, std::set<int>> places;  // by shape
  };
  std::map<std::string, Shown> shown_ GPULOOM_GUARDED_BY(mutex_);
  std::string trouble_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
