// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "agent/softgpu/driver/context.h"

namespace gpuloom::softgpu {
namespace {

// For every device: written once by MakeDevices under the start-up lock, before any other thread
// can read it.
int multiprocessors = 0;

// A deque, because devices are named by their addresses and one is added after the other.
std::deque<Device>& Devices() {
  static auto* devices =
      new std::deque<Device>;  // never destroyed: stream threads may use it during exit
  return *devices;
}

}  // namespace

// A loop instead of a lock: two threads that allocate the last bytes cannot both have them.
bool Device::Take(uint64_t size_bytes) {
  uint64_t used = used_bytes.load();
  do {
    if (size_bytes > memory_bytes - used) return false;
  } while (!used_bytes.compare_exchange_weak(used, used + size_bytes));
  return true;
}

void Device::GiveBack(uint64_t size_bytes) { used_bytes.fetch_sub(size_bytes); }

void MakeDevices(const Settings& settings) {
  multiprocessors = settings.multiprocessors;
  for (int number = 0; number < settings.device_count; ++number) {
    // A lost device takes its number with it: the others keep their UUIDs and bus numbers, as real
    // ones do.
    if (WasLostAtLoad(number)) continue;
    const int ordinal = DeviceCount();
    Device& device = Devices().emplace_back(settings.hardware_queues);
    device.ordinal = ordinal;
    device.number = number;
    // Readable in a dump and the same in every process: "gpuloom softgpu" and the number.
    std::memcpy(device.uuid.bytes, "gpuloom softgpu", 15);
    device.uuid.bytes[15] = static_cast<char>(number);
    const std::vector<uint64_t>& sizes_bytes = settings.memory_bytes;
    device.memory_bytes =
        sizes_bytes[std::min(static_cast<size_t>(number), sizes_bytes.size() - 1)];
    device.primary = MakePrimaryContext(device);
  }
}

int Multiprocessors() { return multiprocessors; }

int DeviceCount() { return static_cast<int>(Devices().size()); }

Device* FindDevice(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < DeviceCount() ? &Devices()[static_cast<size_t>(ordinal)]
                                                 : nullptr;
}

int PciBus(const Device& device) { return 0xa0 + device.number; }

}  // namespace gpuloom::softgpu
