// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/device_board.h"

#include "agent/inventory/slots.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

DeviceBoard::DeviceBoard(std::vector<Gpu> gpus, int slots_per_gpu)
    : gpus_(std::move(gpus)), slots_per_gpu_(slots_per_gpu) {}

void DeviceBoard::SetHealthy(const std::string& gpu_uuid, bool is_healthy) {
  {
    const MutexLock lock(mutex_);
    bool& known = is_healthy_[gpu_uuid];
    if (known == is_healthy) return;
    known = is_healthy;
    ++version_;
  }
  changed_.NotifyAll();
}

void DeviceBoard::SetTrouble(const std::string& trouble) {
  const MutexLock lock(mutex_);
  trouble_ = trouble;
}

std::string DeviceBoard::Trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

std::vector<Slot> DeviceBoard::Slots(uint64_t* version) const {
  const MutexLock lock(mutex_);
  *version = version_;
  std::vector<Slot> slots;
  for (const Gpu& gpu : gpus_) {
    const auto health = is_healthy_.find(gpu.uuid);
    for (int slot = 0; slot < slots_per_gpu_; ++slot) {
      slots.push_back({MakeDeviceId(gpu.uuid, slot), health != is_healthy_.end() && health->second,
                       gpu.numa_node});
    }
  }
  return slots;
}

bool DeviceBoard::WaitForChange(uint64_t version, std::chrono::milliseconds timeout) const {
  MutexLock lock(mutex_);
  return changed_.WaitFor(mutex_, timeout,
                          [&]() GPULOOM_REQUIRES(mutex_) { return version_ != version; });
}

}  // namespace gpuloom
