// SPDX-License-Identifier: Apache-2.0
// Asks the agent of this container for its state, for Kubernetes' probes. Called from main; blocks for at most a few
// seconds.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gpuloom {

// The key in an answer's trailing metadata under which the agent reports what the operator must mend; its ending "-bin"
// allows any bytes. The text is at most kMaxTroubleBytes, because gRPC accepts 8 KiB of metadata.
inline constexpr char kTroubleMetadata[] = "gpuloom-trouble-bin";
inline constexpr size_t kMaxTroubleBytes = 4096;

enum class ProbeKind {
  kLive,  // the agent answers
  // It also has been registered with a kubelet that watched its devices, and nothing is wrong that an operator must
  // mend.
  kReady,
};

// `kubelet_directory` holds the agent's socket. Unavailable: the agent does not answer, or is not registered yet.
// FailedPrecondition: the agent serves, and reports what is wrong.
absl::Status Probe(const std::string& kubelet_directory, ProbeKind kind);

}  // namespace gpuloom
