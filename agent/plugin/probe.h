// Asks the agent behind a socket, for Kubernetes' probes. Blocks for at most a few seconds.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"

namespace gpuloom {

// What the operator must mend travels in the trailing metadata of an answer, under this key, whose
// end lets it hold any bytes. gRPC takes 8 KiB of metadata.
inline constexpr char kTroubleMetadata[] = "gpuloom-trouble-bin";
inline constexpr size_t kMaxTroubleBytes = 4096;

enum class ProbeKind {
  kLive,   // does it answer?
  kReady,  // and is nothing wrong that an operator must mend?
};

// Unavailable: nobody answers. FailedPrecondition: the agent serves, and says what is wrong.
absl::Status Probe(const std::string& socket_path, ProbeKind kind, Clock* clock);

}  // namespace gpuloom
