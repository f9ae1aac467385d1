// SPDX-License-Identifier: Apache-2.0
// Probes whether a GPU works: makes a context, allocates some memory, fills it and copies it back. It does so in a
// process of its own, because a broken driver hangs or corrupts the process that calls it (docs/design/decisions.md).
//
// Functions without state. A GPU that does not work is a result, not an error; if the node lacks the resources for a
// probe, nothing is known of the GPU. A process that hangs in the driver is killed but not waited for: the agent reaps it
// with all children that it does not know.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace gpuloom {

// The result for a GPU that answers but has no memory for a probe. That says nothing about its health: any tenant may
// fill it.
inline constexpr char kGpuIsFull[] = "cuda: the GPU has no memory left for a probe";

// Probes the GPU in this process, from its only thread. Returns an empty text if it works, otherwise one line that
// begins "cuda:".
std::string ProbeGpu(const std::string& cuda_library, const std::string& gpu_uuid);

// The last line that the probing program prints if ProbeGpu finds nothing wrong: a program that dies half-way has not
// printed it.
inline constexpr char kGpuIsWell[] = "the GPU is well\n";

// Starts the program, which prints what ProbeGpu returns, and returns that; or that it hung or died. Waits for at most
// kProbeTimeoutSeconds; if `is_cancelled` becomes true, it returns early with is_known false. Safe from any thread.
inline constexpr int kProbeTimeoutSeconds = 20;
struct ProbeResult {
  bool is_known = false;
  std::string trouble;   // empty: the GPU works, unless is_full
  bool is_full = false;  // it had no room for the probe
};
ProbeResult RunGpuProbe(const std::vector<std::string>& arguments,
                        const std::atomic<bool>& is_cancelled);

}  // namespace gpuloom
