// SPDX-License-Identifier: Apache-2.0
// Waits until the pods of a DaemonSet, one on each of its nodes, are all ready, which means that they have done their
// work. The chart's Jobs around `helm uninstall` do only this. Needs the rights to get the DaemonSet and, to report
// what a node's pod waits for, to list the namespace's pods and to read their logs. One thread; blocks.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"

namespace gpuloom {

struct PodsWait {
  static constexpr Clock::Duration kPause = std::chrono::seconds(1);
  // How long pods are asked for their lines when the time is over: a server that hangs would take 5 s for each.
  static constexpr Clock::Duration kLastLinesTime = std::chrono::seconds(15);

  std::string server;  // "https://HOST:PORT"
  std::string
      service_account;  // a folder with `token`, `ca.crt` and `namespace`, in which the DaemonSet is
  std::string daemon_set;
  Clock::Duration timeout{};
  Clock* clock = nullptr;
};

// DeadlineExceeded names each node whose pod is not ready and gives that pod's last line, or says why nothing is known, or
// where it is said.
// Cancelled: `is_cancelled` became true.
absl::Status WaitForPods(const PodsWait& wait, const std::atomic<bool>& is_cancelled);

}  // namespace gpuloom
