// SPDX-License-Identifier: Apache-2.0
// The features that gpuloom disables with a driver that is older than the newest it knows, for messages. Node side
// only: uses std::string. Pure; safe from any thread.
#pragma once

#include <string>

namespace gpuloom {

// A feature that tenants do not have if the driver is older than `since` (12030 is CUDA 12.3).
struct DriverFeature {
  int since;
  const char* what;
};

// In the order of `since`. docs/compatibility.md has the same list; a test compares them.
inline constexpr DriverFeature kDriverFeatures[] = {
    {12030, "conditional graph nodes"},
    {12030, "programmatic dependent launches in graphs"},
    {12030, "kernels' names in traces and in messages about long kernels"},
    {12040, "kernels of link-time optimised code, whose parameters only the driver knows"},
    {12050, "green contexts, smPercent and smReserved"},
    {12080, "conditional graph nodes that switch or have two branches"},
    {12080, "wide im2col tensor maps"},
};

// "12.2" for 12020.
std::string CudaVersionText(int version);

// "the driver's CUDA 12.2 is older than 13.0: off are conditional graph nodes (they need 12.3), …"; empty if nothing
// is off, and for 0: unknown.
std::string MissingFeatures(int driver_version);

}  // namespace gpuloom
