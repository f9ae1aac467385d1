// SPDX-License-Identifier: Apache-2.0
#include "agent/command_line.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "agent/inventory/slots.h"
#include "agent/node/process.h"
#include "proto/control/version.h"

namespace gpuloom {

std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status) {
  CommandLine line;
  const std::filesystem::path here = std::filesystem::path(OwnProgram()).parent_path();
  line.scheduler = here / "gpuloom-scheduler";
  line.shim = here.parent_path() / "lib" / "libgpuloom.so";
  line.nvml = here.parent_path() / "lib" / "libgpuloom-nvml.so";

  CLI::App app("gpuloom-agent: shares this node's GPUs with pods that ask for gpuloom.io/gpu");
  app.add_option("--state-dir", line.state_directory,
                 "what survives restarts; on a file system that allows exec")
      ->capture_default_str();
  app.add_option("--kubelet-dir", line.kubelet_directory, "the kubelet's device-plugins directory")
      ->capture_default_str();
  app.add_option("--pod-resources-socket", line.pod_resources, "the kubelet's PodResources socket")
      ->capture_default_str();
  app.add_option("--resource-name", line.resource_name, "what pods ask for")->capture_default_str();
  CLI::Option* policy = app.add_option("--policy", line.policy,
                                       "policy file (YAML); without it the built-in defaults");
  app.add_option("--slots", line.slots, "slots per GPU")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxSlotsPerGpu));
  app.add_option("--reserve", line.reserve,
                 "GPU memory kept for the executors' own contexts: a size, or auto")
      ->capture_default_str();
  app.add_option("--pinned-limit", line.pinned_limit, "host memory that one tenant process may pin")
      ->capture_default_str();
  app.add_option("--shim", line.shim, "libgpuloom.so, which containers get as libcuda.so.1")
      ->capture_default_str();
  app.add_option("--nvml", line.nvml,
                 "libgpuloom-nvml.so, which containers get as libnvidia-ml.so.1")
      ->capture_default_str();
  app.add_option("--scheduler", line.scheduler, "the gpuloom-scheduler program")
      ->capture_default_str();
  app.add_option("--softgpu", line.softgpu,
                 "use this CUDA library (the software GPU) instead of NVIDIA's driver");
  app.add_option(
         "--schedulers", line.schedulers,
         "start: adopt or start them; adopt: never start one; only: run nothing but schedulers")
      ->capture_default_str()
      ->check(CLI::IsMember({"start", "adopt", "only"}));
  app.add_option(
      "--idle-timeout", line.idle_timeout,
      "how long an executor outlives its last tenant, like 60s; default: the scheduler's");
  app.add_option(
      "--drain-timeout", line.drain_timeout,
      "how long the work of a tenant that ended may still run, like 10s; default: the scheduler's");
  app.add_option(
      "--executor-users", line.executor_users,
      "the users that executors run as, one each: auto, none, or FIRST-LAST; default: the "
      "scheduler's");
  app.add_option(
      "--executor-memory", line.executor_memory,
      "memory of the node that one trust domain's executor may spend on its tenants, like "
      "16GiB, one process a quarter of it at most; default: the executor's");
  app.add_option("--nvidia-runtime-config", line.runtime_config,
                 "where to look whether unprivileged pods can get devices by environment variable")
      ->capture_default_str();
  std::string metrics_address;
  CLI::Option* metrics =
      app.add_option("--metrics-address", metrics_address,
                     "serve figures and a page of the node there over HTTP, to whoever reaches it: "
                     "ADDRESS:PORT, or :9464 for all addresses; default: nowhere")
          ->check([&line](const std::string& text) {
            std::string error;
            line.metrics_address = ParseListenAddress(text, &error);
            return error;
          });
  app.add_option("--grace-seconds", line.grace_seconds, "nothing is collected in its first seconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--missing-seconds", line.missing_seconds,
                 "how long a pod must be gone to be collected")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag_callback(
      "--probe", [&line] { line.probe = ProbeKind::kLive; },
      "ask the running agent whether it serves, and exit");
  app.add_flag_callback(
      "--probe-ready", [&line] { line.probe = ProbeKind::kReady; },
      "the same, and fail with the reason when there is something that an operator must mend");
  app.add_flag("--check-policy", line.check_policy,
               "say whether the file of --policy is a policy, and exit")
      ->needs(policy);
  app.set_version_flag("--version", VersionLine("gpuloom-agent"));
  try {
    app.parse(argc, argv);
    if (*metrics && line.schedulers == "only") {
      throw CLI::ValidationError("--metrics-address", "nothing is served with --schedulers only");
    }
  } catch (const CLI::ParseError& mistake) {
    *exit_status = app.exit(mistake);
    return std::nullopt;
  }
  return line;
}

}  // namespace gpuloom
