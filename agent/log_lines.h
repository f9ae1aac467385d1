// The agent's log: what others say (the kubelet, names of pods, a policy) stands in its lines and begins none.
#pragma once

#include <cstddef>

namespace gpuloom {

inline constexpr size_t kMaxLogLineBytes = 8u << 10;

// Every message of spdlog's default logger is one line of a bounded length from here on.
void KeepLogLinesWhole();

}  // namespace gpuloom
