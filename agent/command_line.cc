// SPDX-License-Identifier: Apache-2.0
// Options come in the order in which --help lists them. What one option says by itself is checked
// by CLI11 while it parses; what needs several of them is checked after that, with the same kind of
// error, so that all mistakes look alike.
#include "agent/command_line.h"

#include <CLI/CLI.hpp>

#include "agent/inventory/slots.h"
#include "agent/metrics/allowed_hosts.h"
#include "agent/node/command_mistake.h"
#include "agent/node/duration.h"
#include "agent/node/layout.h"
#include "agent/node/process.h"
#include "proto/control/version.h"

namespace gpuloom {

std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status) {
  CommandLine line;
  // Before the options are added: these are the defaults that --help shows.
  const Layout layout = LayoutOf(OwnProgram());
  line.scheduler = layout.scheduler();
  line.shim = layout.shim();
  line.nvml = layout.nvml();
  line.trace = layout.trace();

  CLI::App app("gpuloom-agent: shares this node's GPUs with pods that ask for gpuloom.io/gpu");
  app.failure_message([](const CLI::App* parsed, const CLI::Error& mistake) {
    return CommandMistake("gpuloom-agent", *parsed, mistake);
  });
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
  std::string shapes;
  app.add_option(
      "--slot-shapes", shapes,
      "shapes of several slots, like 2,4: each is one more resource, like gpuloom.io/gpu-x4, "
      "of which one is so many slots of one GPU");
  app.add_option("--reserve", line.reserve,
                 "GPU memory kept for the executors' own contexts: a size, or auto")
      ->capture_default_str();
  app.add_option("--pinned-limit", line.pinned_limit, "host memory that one tenant process may pin")
      ->capture_default_str();
  app.add_flag(
      "--migrate-managed-memory", line.migrate_managed_memory,
      "let managed memory migrate to the device: containers get /dev/userfaultfd, by which "
      "they can also hold up the kernel where it reads their memory");
  app.add_option("--shim", line.shim, "libgpuloom.so, which containers get as libcuda.so.1")
      ->capture_default_str();
  app.add_option("--nvml", line.nvml,
                 "libgpuloom-nvml.so, which containers get as libnvidia-ml.so.1")
      ->capture_default_str();
  app.add_option("--trace", line.trace, "the program gpuloom-trace, which containers get")
      ->capture_default_str();
  app.add_option("--scheduler", line.scheduler, "the gpuloom-scheduler program")
      ->capture_default_str();
  app.add_option("--softgpu", line.softgpu,
                 "use this CUDA library (the software GPU) instead of NVIDIA's driver");
  // For tests.
  app.add_option("--health-nvml", line.health_nvml,
                 "use this libnvidia-ml.so.1 to see which GPUs are broken")
      ->group("");
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
  app.add_option("--spare-executors", line.spare_executors,
                 "executors that each GPU has ready for the next trust domain; one takes about 580 "
                 "MiB of the reserve; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 8));
  app.add_option("--nvidia-runtime-config", line.runtime_config,
                 "where to look whether unprivileged pods can get devices by environment variable")
      ->capture_default_str();
  std::string metrics_address;
  CLI::Option* metrics =
      app.add_option("--metrics-address", metrics_address,
                     "serve figures and a page of the node there over HTTP, to whoever reaches it: "
                     "ADDRESS:PORT, or :9464 for all addresses; default: nowhere")
          // A check that also keeps what it has parsed. Empty is CLI11's word for a good value.
          ->check([&line](const std::string& text) {
            std::string error;
            line.metrics_address = ParseListenAddress(text, &error);
            return error;
          });
  app.add_option(
         "--metrics-hosts", line.metrics_hosts,
         "names by which --metrics-address may be asked, like gpus.example.com or "
         "*.example.com, with commas between; addresses, localhost, names without a dot and "
         "those of Services (NAME.NAMESPACE.svc) may always")
      ->delimiter(',')
      ->needs(metrics)
      ->check([](const std::string& text) {
        std::string error;
        (void)IsAllowedHostName(text, &error);
        return error;
      });
  CLI::Option* events = app.add_flag(
      "--events", line.tells_events,
      "post refusals, faults, policy errors and how GPUs stand as Kubernetes events; needs the "
      "rights to create and patch events and to get pods");
  CLI::Option* node_name =
      app.add_option("--node-name", line.node_name, "what the cluster calls this node");
  events->needs(node_name);
  app.add_option("--api-server", line.api_server,
                 "https://HOST:PORT of the API server for --events and --await-pods; default: the "
                 "cluster's that this runs in");
  app.add_option("--service-account", line.service_account,
                 "folder with the token and the ca.crt for it")
      ->capture_default_str();
  // With this, a probe or --check-policy the program only asks something and ends (main.cc); other
  // options then say where to ask.
  CLI::Option* await_pods =
      app.add_option("--await-pods", line.await_pods,
                     "wait until every pod of this DaemonSet of the own namespace is ready, and "
                     "exit; for the chart's Jobs around helm uninstall");
  std::string await_timeout = "4m";
  app.add_option("--await-timeout", await_timeout,
                 "how long, like 4m; then fail, and say what each node's pod waits for")
      ->capture_default_str()
      ->needs(await_pods);
  app.add_option("--grace-seconds", line.grace_seconds, "nothing is collected in its first seconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--missing-seconds", line.missing_seconds,
                 "how long a pod must be gone to be collected")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--log-level", line.log_level,
                 "what is logged, by the schedulers that this agent starts, too: error, warning, "
                 "info or debug; SIGUSR1 logs everything, SIGHUP again this")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "warning", "info", "debug"}));
  app.add_option("--log-format", line.log_format, "text, or json: an object a line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag_callback(
      "--probe", [&line] { line.probe = ProbeKind::kLive; },
      "ask the running agent whether it serves, and exit");
  app.add_flag_callback(
      "--probe-ready", [&line] { line.probe = ProbeKind::kReady; },
      "the same, and fail with the reason when there is something that an operator must mend");
  app.add_option(
      "--probe-gpu", line.probe_gpu,
      "make a context on the GPU of this UUID, compute, say whether that works, and exit; "
      "the agent does so when a GPU seems to be sick");
  app.add_flag(
      "--list-gpus", line.list_gpus,
      "print which GPUs there are, as JSON, and exit; the agent does so where one cannot be used");
  app.add_flag("--check-policy", line.check_policy,
               "say whether the file of --policy is a policy, and exit")
      ->needs(policy);
  app.set_version_flag("--version", VersionLine("gpuloom-agent"));
  try {
    app.parse(argc, argv);
    const auto timeout = ParseDuration(await_timeout);
    if (!timeout) {
      throw CLI::ValidationError("--await-timeout",
                                 "\"" + await_timeout + "\" is no time; write one like 4m or 90s");
    }
    line.await_timeout = *timeout;
    // Here, not in a check: --slots may come behind --slot-shapes.
    const absl::StatusOr<std::vector<int>> parsed = ParseShapes(shapes, line.slots);
    if (!parsed.ok()) {
      throw CLI::ValidationError("--slot-shapes", std::string(parsed.status().message()));
    }
    line.shapes = *parsed;
    if (*metrics && line.schedulers == "only") {
      throw CLI::ValidationError("--metrics-address", "nothing is served with --schedulers only");
    }
  } catch (const CLI::ParseError& mistake) {
    // --help and --version end the parsing as mistakes do, with status 0. 2 is a wrong command
    // line, 1 an agent that cannot run.
    *exit_status = app.exit(mistake) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return line;
}

}  // namespace gpuloom
