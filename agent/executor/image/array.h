// SPDX-License-Identifier: Apache-2.0
// An array in this context, whole or mipmapped, and what it was charged. Shared by the session that
// made it, by its commands on their way, by textures and surfaces that look at it: the driver must
// not meet a handle of something gone, whatever a tenant destroys first. Destroying may wait for the
// device, so the last reference retires it (quiet.h). Ring thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/executor/device/quiet.h"
#include "proto/wire/array_commands.h"

namespace gpuloom::executor {

struct DeviceArray {
  DeviceArray(Quiet* destroys, const Driver* driver, const wire::ArrayCreate::Request& judged)
      : quiet(destroys), cuda(driver), request(judged) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray();

  // The driver's object, as it was asked for, all zeros; on a worker.
  CUresult Make();
  // Gives the driver its memory back; on a worker while the device is idle. Once.
  void Destroy();

  Quiet* const quiet;
  const Driver* const cuda;
  const wire::ArrayCreate::Request request;
  CUarray array = nullptr;  // one of the two
  CUmipmappedArray mipmap = nullptr;
  uint32_t levels = 0;                 // of the latter
  uint64_t memory_id = 0;              // of the charge
  std::function<void()> on_destroyed;  // gives the charge back; may be empty
};
using ArrayRef = std::shared_ptr<DeviceArray>;

// A name for an array: whole, mipmapped (then `array` is null), or a level of one.
struct ArrayEntry {
  CUarray array = nullptr;
  ArrayRef whole;  // null while it is being made
  std::optional<uint32_t> level;
  std::vector<wire::ArrayId> levels;  // of a mipmapped one: those that have names
};

// How many bytes of device memory the driver takes for it at most. UINT64_MAX for sizes that no
// device has.
uint64_t ArrayBytes(const wire::ArrayCreate::Request& request);

}  // namespace gpuloom::executor
