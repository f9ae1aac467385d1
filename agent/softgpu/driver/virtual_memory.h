// SPDX-License-Identifier: Apache-2.0
// Address ranges reserved by cuMemAddressReserve and physical memory mapped into them.
//
// A reservation keeps its addresses from all other uses in the process. Kernels and copies see mapped memory only after
// cuMemSetAccess. Unmapping does not wait for running work: such work faults when it touches the range again. Safe from
// any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/physical_memory.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class VirtualMemory {
 public:
  static VirtualMemory& Instance();

  // Reserves at `wanted`, rounded up to a multiple of 32 MiB, if that is not 0, free, and the size is 32 MiB or more;
  // otherwise anywhere, as the real driver does. `alignment_bytes` 0 means the granularity.
  [[nodiscard]] CUresult Reserve(uint64_t size_bytes, uint64_t alignment_bytes, uint64_t wanted,
                                 uint64_t& begin);
  // The range must be exactly one reservation with nothing mapped in it.
  [[nodiscard]] CUresult Free(uint64_t begin, uint64_t size_bytes);
  [[nodiscard]] CUresult Map(uint64_t begin, uint64_t size_bytes,
                             std::shared_ptr<Physical> physical);
  // The reservation around the address.
  [[nodiscard]] bool FindReservation(uint64_t address, uint64_t& begin, uint64_t& size_bytes);
  // The range of Unmap and SetAccess must consist of whole mappings, one or several in a row.
  [[nodiscard]] CUresult Unmap(uint64_t begin, uint64_t size_bytes);
  [[nodiscard]] CUresult SetAccess(uint64_t begin, uint64_t size_bytes, CUmemAccess_flags access);

  // Several pieces side by side, which are one region of the device's memory, `size_bytes` of it in use. Only UnmapWhole
  // unmaps it.
  [[nodiscard]] CUresult MapWhole(uint64_t begin, uint64_t size_bytes, Device& device,
                                  const std::vector<std::shared_ptr<Physical>>& pieces);
  void UnmapWhole(uint64_t begin);

 private:
  [[nodiscard]] bool FindReservationLocked(uint64_t address, uint64_t& begin,
                                           uint64_t& size_bytes) const GPULOOM_REQUIRES(mutex_);
  [[nodiscard]] bool ConsistsOfMappings(uint64_t begin, uint64_t size_bytes) const;

  Mutex mutex_;
  std::map<uint64_t, uint64_t> reservations_ GPULOOM_GUARDED_BY(mutex_);  // begin → size in bytes
};

}  // namespace gpuloom::softgpu
