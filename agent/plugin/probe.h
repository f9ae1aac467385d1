// SPDX-License-Identifier: Apache-2.0
// Asks this container's agent, for Kubernetes' probes. Blocks for at most a few seconds.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gpuloom {

// What the operator must mend travels in the trailing metadata of an answer, under this key, whose
// end lets it hold any bytes. gRPC takes 8 KiB of metadata.
inline constexpr char kTroubleMetadata[] = "gpuloom-trouble-bin";
inline constexpr size_t kMaxTroubleBytes = 4096;

enum class ProbeKind {
  kLive,  // does it answer?
  // And has it once been registered with a kubelet that watches its devices, and is nothing wrong that an
  // operator must mend?
  kReady,
};

// `kubelet_directory` holds the agent's socket. Unavailable: nobody answers, or it is not registered
// yet. FailedPrecondition: the agent serves, and says what is wrong.
absl::Status Probe(const std::string& kubelet_directory, ProbeKind kind);

}  // namespace gpuloom
