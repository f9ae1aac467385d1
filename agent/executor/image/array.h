// SPDX-License-Identifier: Apache-2.0
// A CUDA array in this context, plain or mipmapped, and its charge. Shared by the session that
// created it, by its commands in flight, and by textures and surfaces on it: the driver must never
// see a handle of a destroyed array, in whatever order a tenant destroys things. Destroying may
// wait for the device, so the last reference retires it (quiet.h). Ring thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "proto/cuda/driver.h"
#include "proto/wire/array_commands.h"

namespace gpuloom::executor {

class DeviceCharge;
class Quiet;

struct DeviceArray {
  DeviceArray(Quiet* destroys, const Driver* driver, const wire::ArrayCreate::Request& judged)
      : quiet(destroys), cuda(driver), request(judged) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray();

  // Creates the driver's object, as requested and zeroed in this stream; on a worker.
  CUresult Make(CUstream stream);
  // Frees the driver's memory; on a worker while the device is idle. Once.
  void Destroy();

  Quiet* const quiet;
  const Driver* const cuda;
  const wire::ArrayCreate::Request request;
  CUarray array = nullptr;  // one of the two is set
  CUmipmappedArray mipmap = nullptr;
  uint32_t levels = 0;  // of `mipmap`
  std::shared_ptr<DeviceCharge> charge;
};
using ArrayRef = std::shared_ptr<DeviceArray>;

// An array handle: plain, mipmapped (then `array` is null), or one level of a mipmapped array.
struct ArrayEntry {
  CUarray array = nullptr;
  ArrayRef whole;  // null while it is being made
  std::optional<uint32_t> level;
  std::vector<wire::ArrayId> levels;  // of a mipmapped one: levels that have ids
};

// Host memory that a texture or a surface takes, ours and the driver's.
inline constexpr uint64_t kViewTakesBytes = 512;

// The most device memory that the driver takes for it, in bytes. UINT64_MAX for sizes that no
// device has.
uint64_t ArrayBytes(const wire::ArrayCreate::Request& request);

}  // namespace gpuloom::executor
