// SPDX-License-Identifier: Apache-2.0
// Whether a GPU does what it is asked for: a context, some memory, a fill, a copy back. In a process of its own,
// because a broken driver hangs or poisons the process that calls it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace gpuloom {

// Of a GPU that answers and has no room for a probe. That says nothing of its health: whoever may allocate fills it.
inline constexpr char kGpuIsFull[] = "cuda: the GPU has no memory left for a probe";

// In that process. Empty: it does. Else one line, which begins "cuda:".
std::string ProbeGpu(const std::string& cuda_library, const std::string& gpu_uuid);

// Printed behind everything else by a program whose ProbeGpu says nothing: one that dies half-way has not said it.
inline constexpr char kGpuIsWell[] = "the GPU is well\n";

// Starts the program, which prints what ProbeGpu says, and returns that; or that it hung, or ended otherwise. Waits, at
// most kProbeTimeoutSeconds, and less when `is_cancelled` becomes true: then it says that nothing is known.
inline constexpr int kProbeTimeoutSeconds = 20;
struct ProbeResult {
  bool is_known = false;
  std::string trouble;   // empty: the GPU is well, unless
  bool is_full = false;  // it had no room for the probe
};
ProbeResult RunGpuProbe(const std::vector<std::string>& arguments,
                        const std::atomic<bool>& is_cancelled);

}  // namespace gpuloom
