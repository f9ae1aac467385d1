// SPDX-License-Identifier: Apache-2.0
// What the agent shows: to the kubelet the devices, every slot of every GPU, healthy while it can be
// used; to whoever asks for its readiness what the operator must mend. Streams of ListAndWatch wait
// here for changes. Safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/inventory/gpu.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

struct Slot {
  std::string device_id;
  bool is_healthy = false;
  int numa_node = -1;
};

class DeviceBoard {
 public:
  DeviceBoard(std::vector<Gpu> gpus, int slots_per_gpu);

  void SetHealthy(const std::string& gpu_uuid, bool is_healthy);
  // Empty: nothing is wrong.
  void SetTrouble(const std::string& trouble);
  std::string Trouble() const;
  std::vector<Slot> Slots(uint64_t* version) const;
  // Until the version is another one, or the time is over. True when it is another one.
  bool WaitForChange(uint64_t version, std::chrono::milliseconds timeout) const;

 private:
  const std::vector<Gpu> gpus_;
  const int slots_per_gpu_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t version_ GPULOOM_GUARDED_BY(mutex_) = 1;
  std::map<std::string, bool> is_healthy_ GPULOOM_GUARDED_BY(mutex_);
  std::string trouble_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
