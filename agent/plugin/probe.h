// Is the agent behind this socket answering? For Kubernetes' probes. Blocks for at most a few
// seconds.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"

namespace gpuloom {

absl::Status Probe(const std::string& socket_path, Clock* clock);

}  // namespace gpuloom
