// SPDX-License-Identifier: Apache-2.0
// The agent's command line. Plain values, which main owns and copies into the parts' options. Called once, from main,
// before there is another thread. Prints help, the version and errors itself; the exit status is then 0, or 2 for a mistake.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

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
  std::vector<int> shapes;       // slots of each shape; each shape is a resource
  std::string reserve = "auto";  // or a size
  std::string pinned_limit = "8GiB";
  // Paths; by default those of this program's own installation (agent/node/layout.h).
  std::string shim;
  std::string nvml;
  std::string trace;
  std::string scheduler;
  std::string softgpu;      // empty: NVIDIA's driver
  std::string health_nvml;  // the NVML that reports faults; empty: NVIDIA's, none with softgpu
  std::string schedulers = "start";  // start, adopt or only
  std::string idle_timeout;          // empty: the scheduler's default
  std::string drain_timeout;         // empty: the scheduler's default
  std::string executor_users;        // empty: the scheduler's default
  std::string executor_memory;       // empty: the executor's default
  unsigned spare_executors = 1;      // for each GPU
  bool migrate_managed_memory = false;
  std::string runtime_config = "/etc/nvidia-container-runtime/config.toml";
  std::optional<ListenAddress> metrics_address;  // none: nothing is served
  std::vector<std::string> metrics_hosts;        // further host names that a request may use
  bool tells_events = false;                     // post events to the API server
  std::string api_server;                        // empty: that of the cluster this runs in
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
  std::string node_name;
  int grace_seconds = 300;
  int missing_seconds = 60;
  std::string log_level = "info";
  std::string log_format = "text";
  std::optional<ProbeKind> probe;
  bool check_policy = false;
  std::string probe_gpu;  // the UUID of a GPU to probe; empty: none
  bool list_gpus = false;
  // For the chart's Jobs around `helm uninstall`.
  std::string await_pods;  // a DaemonSet's name; empty: nothing is waited for
  std::chrono::milliseconds await_timeout{};
};

// nullopt: there is nothing to run; the caller exits with *exit_status.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status);

}  // namespace gpuloom
