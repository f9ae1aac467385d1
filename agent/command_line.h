// SPDX-License-Identifier: Apache-2.0
// The agent's command line. Prints help and mistakes itself. Called once, from main.
#pragma once

#include <optional>
#include <string>

#include "agent/metrics/listen_address.h"
#include "agent/plugin/probe.h"

namespace gpuloom {

struct CommandLine {
  std::string state_directory = "/var/lib/gpuloom";
  std::string kubelet_directory = "/var/lib/kubelet/device-plugins";
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string resource_name = "gpuloom.io/gpu";
  std::string policy;  // empty: the built-in defaults
  int slots = 10;
  std::string reserve = "auto";  // or a size
  std::string pinned_limit = "8GiB";
  // Beside this program, unless told otherwise: bin/ and lib/ of a build tree or an installation.
  std::string shim;
  std::string nvml;
  std::string scheduler;
  std::string softgpu;               // empty: NVIDIA's driver
  std::string schedulers = "start";  // start, adopt or only
  std::string idle_timeout;          // empty: the scheduler's default
  std::string drain_timeout;         // empty: the scheduler's default
  std::string executor_users;        // empty: the scheduler's default
  std::string executor_memory;       // empty: the executor's default
  std::string runtime_config = "/etc/nvidia-container-runtime/config.toml";
  std::optional<ListenAddress> metrics_address;  // none: nothing is served
  int grace_seconds = 300;
  int missing_seconds = 60;
  std::optional<ProbeKind> probe;
  bool check_policy = false;
};

// nullopt: there is nothing to run, end with *exit_status.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status);

}  // namespace gpuloom
