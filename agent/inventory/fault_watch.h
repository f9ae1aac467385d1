// SPDX-License-Identifier: Apache-2.0
// Reads from NVML what the driver reports about broken GPUs: Xid errors, and GPUs that have fallen off the bus. Keeps
// NVML open, because NVML keeps events only for a waiting client. Used by one thread; may hang as long as a broken
// driver does.
//
// Xids that an application causes are not counted as faults of the GPU: any program that may run kernels can cause
// them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/node/nvml_library.h"

namespace gpuloom {

struct GpuFault {
  std::string gpu_uuid;
  std::string reason;     // one line
  bool is_event = false;  // true: something happened, reported once; false: the GPU's present state
};

// Whether a program's own mistake can cause this Xid.
bool IsOfAnApplication(uint64_t xid);

class FaultWatch {
 public:
  FaultWatch(std::vector<std::string> gpu_uuids, std::string library)
      : gpu_uuids_(std::move(gpu_uuids)), library_(std::move(library)) {}
  ~FaultWatch();

  // Returns what has been reported since the last look, and what is broken at present. Does not wait for events.
  std::vector<GpuFault> Look();

 private:
  // Says what is wrong now with a GPU; empty: nothing.
  static std::string TroubleOf(const NvmlLibrary& nvml, NvmlDevice device);
  void Open();
  void Close();
  void ReadEvents(std::vector<GpuFault>* faults);

  const std::vector<std::string> gpu_uuids_;
  const std::string library_;
  std::unique_ptr<NvmlLibrary> nvml_;  // null: not open
  std::map<NvmlDevice, std::string>
      devices_;                    // but those that could not be used when it was opened
  std::vector<GpuFault> missing_;  // what was wrong with those
  int looks_ = 0;                  // since it was opened
  void* events_ = nullptr;         // an event set, if the library has such
  bool is_outdated_ = false;       // to be opened again at the next look
};

}  // namespace gpuloom
