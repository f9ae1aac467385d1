// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/device_board.h"

#include "agent/inventory/slots.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

DeviceBoard::DeviceBoard(std::vector<Gpu> gpus, int slots_per_gpu, std::vector<int> shapes)
    : gpus_(std::move(gpus)), slots_per_gpu_(slots_per_gpu), shapes_(std::move(shapes)) {}

void DeviceBoard::ShowUse(const std::string& gpu_uuid, const SlotUse& use) {
  std::map<int, std::set<int>> places;
  for (const int shape : shapes_) places[shape] = use.Places(shape);
  std::set<int> closed = use.Closed();
  {
    const MutexLock lock(mutex_);
    Shown& shown = shown_[gpu_uuid];
    // Streams are woken, and the kubelet is sent the whole list, only for what it can see.
    if (shown.closed == closed && shown.places == places) return;
    shown.closed = std::move(closed);
    shown.places = std::move(places);
    ++version_;
  }
  changed_.NotifyAll();
}

void DeviceBoard::Show(const std::string& gpu_uuid, const GpuStanding& standing) {
  {
    const MutexLock lock(mutex_);
    Shown& shown = shown_[gpu_uuid];
    // The reason why a GPU is not healthy does not matter to the kubelet, which knows only two states.
    const bool is_news =
        (shown.standing.state == GpuState::kHealthy) != (standing.state == GpuState::kHealthy);
    shown.standing = standing;
    if (!is_news) return;
    ++version_;
  }
  changed_.NotifyAll();
}

GpuStanding DeviceBoard::StandingOf(const std::string& gpu_uuid) const {
  const MutexLock lock(mutex_);
  const auto shown = shown_.find(gpu_uuid);
  return shown == shown_.end() ? GpuStanding{} : shown->second.standing;
}

void DeviceBoard::SetTrouble(const std::string& trouble) {
  const MutexLock lock(mutex_);
  trouble_ = trouble;
}

std::string DeviceBoard::Trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

std::vector<ShownDevice> DeviceBoard::Devices(int shape, uint64_t* version) const {
  const MutexLock lock(mutex_);
  *version = version_;
  std::vector<ShownDevice> devices;
  for (const Gpu& gpu : gpus_) {
    const auto shown = shown_.find(gpu.uuid);
    // A GPU whose state is not known yet is unhealthy. has_room is called only for GPUs that are in
    // shown_.
    const bool is_healthy =
        shown != shown_.end() && shown->second.standing.state == GpuState::kHealthy;
    const auto has_room = [&](int number) {
      if (shape == 1) return !shown->second.closed.contains(number);
      const auto places = shown->second.places.find(shape);
      return places != shown->second.places.end() && places->second.contains(number);
    };
    // Every device is listed always, healthy or not: one that is missing from the list is to a
    // kubelet one that was removed from the node. Of a shape there are as many as an empty GPU has
    // room for.
    for (int number = 0; number < slots_per_gpu_ / shape; ++number) {
      devices.push_back(
          {MakeDeviceId({gpu.uuid, shape, number}), is_healthy && has_room(number), gpu.numa_node});
    }
  }
  return devices;
}

bool DeviceBoard::WaitForChange(uint64_t version, std::chrono::milliseconds timeout) const {
  MutexLock lock(mutex_);
  return changed_.WaitFor(mutex_, timeout,
                          [&]() GPULOOM_REQUIRES(mutex_) { return version_ != version; });
}

}  // namespace gpuloom
