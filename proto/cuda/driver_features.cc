// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/driver_features.h"

namespace gpuloom {

std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string MissingFeatures(int driver_version) {
  std::string off;
  // The list is in the order of versions, so those of one version form one clause.
  int since = 0;
  for (const DriverFeature& feature : kDriverFeatures) {
    if (driver_version == 0 || driver_version >= feature.since) continue;
    if (feature.since != since) {
      since = feature.since;
      off += (off.empty() ? "from CUDA " : "; from ") + CudaVersionText(since) + " on: ";
    } else {
      off += ", ";
    }
    off += feature.what;
  }
  if (off.empty()) return off;
  return "the driver's CUDA version is " + CudaVersionText(driver_version) +
         ", so these are off: " + off;
}

}  // namespace gpuloom
