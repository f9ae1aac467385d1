// SPDX-License-Identifier: Apache-2.0
// What the agent shows: to the kubelet the devices of each resource, every slot of every GPU, and for a
// shape of several slots every place that a GPU has for it, healthy while it can be given; to whoever
// asks for its readiness what the operator must mend. Streams of ListAndWatch wait here for changes.
// Safe from any thread.
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
  // Of these shapes, beside single slots.
  DeviceBoard(std::vector<Gpu> gpus, int slots_per_gpu, std::vector<int> shapes = {});

  // Devices of a healthy GPU can be given, but for those that its use leaves no room for.
  void Show(const std::string& gpu_uuid, const GpuStanding& standing);
  void ShowUse(const std::string& gpu_uuid, const SlotUse& use);
  GpuStanding StandingOf(const std::string& gpu_uuid) const;
  // Empty: nothing is wrong.
  void SetTrouble(const std::string& trouble);
  std::string Trouble() const;
  // Of a shape; 1: single slots.
  std::vector<ShownDevice> Devices(int shape, uint64_t* version) const;
  // Until the version is another one, or the time is over. True when it is another one.
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
