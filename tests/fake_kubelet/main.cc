// SPDX-License-Identifier: Apache-2.0
// fake-kubelet: the kubelet stand-in as a program. Serves its sockets, waits for the agent, runs a
// scenario's pods as local processes and prints one JSON object a line for each:
//
//   {"namespace", "pod", "slots", "program", "phase": "Succeeded" | "Failed" | "Refused",
//   "message", "reason",
//    "exit_code", "signal", "duration_ms", "stdout", "stderr",
//    "trust_domain", "quota_bytes", "memory_peak_bytes", "memory_refused", "kernels"}
//
// The last line of keys only where the scheduler answers; "reason" only of a pod that was not admitted. Exit status: 0 when every pod was
// admitted, started and ended, whatever its own exit status; 1 otherwise; 2 for a bad command line
// or scenario. With --ready it prints
// {"ready": ...} first, once its sockets are there, so that a script knows when to start the agent.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/fake_kubelet/allocation_report.h"
#include "tests/fake_kubelet/container_process.h"
#include "tests/fake_kubelet/fake_kubelet.h"
#include "tests/fake_kubelet/json_line.h"
#include "tests/fake_kubelet/scenario.h"

namespace gpuloom {
namespace {

using Millis = std::chrono::milliseconds;

// What a table shows is at the end of a program's output.
constexpr size_t kMaxOutputBytes = 64 << 10;

std::string ReadTail(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string content = text.str();
  if (content.size() > kMaxOutputBytes) content.erase(0, content.size() - kMaxOutputBytes);
  return content;
}

class ScenarioRun {
 public:
  ScenarioRun(FakeKubelet* kubelet, std::string log_directory)
      : kubelet_(kubelet), log_directory_(std::move(log_directory)) {}

  // True when every pod ran.
  bool Run(const std::vector<ScenarioPod>& pods) {
    std::vector<std::thread> threads;
    for (const ScenarioPod& pod : pods) {
      // Admission is the kubelet's, one pod at a time; what waits for another pod is admitted after
      // it.
      absl::StatusOr<FakePod> admitted = absl::UnknownError("not yet");
      if (pod.after.empty()) admitted = Admit(pod);
      threads.emplace_back([this, &pod, admitted]() mutable {
        if (!pod.after.empty()) {
          WaitFor(pod.pod_namespace, pod.after);
          admitted = Admit(pod);
        }
        RunPod(pod, admitted);
        Ended(pod);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all_ran_;
  }

  // Pods as they come, one a line of `lines`, written as a scenario has them, in braces. A pod for which there is no room waits,
  // as the cluster's scheduler leaves it pending, and those behind it. Until the last line's has ended. False, with a message,
  // when a line is no pod.
  bool RunStream(std::istream& lines) {
    std::string line;
    bool is_read = true;
    while (is_read && std::getline(lines, line)) {
      absl::StatusOr<std::vector<ScenarioPod>> pods = ParseScenario("pods: [" + line + "]");
      is_read = pods.ok();
      if (!is_read) {
        std::fprintf(stderr, "fake-kubelet: %s\n", std::string(pods.status().message()).c_str());
        break;
      }
      for (const ScenarioPod& pod : *pods) {
        kubelet_->WaitForFreeDevices(pod.resource, static_cast<size_t>(pod.slots),
                                     std::chrono::seconds(pod.timeout_seconds));
        absl::StatusOr<FakePod> admitted = Admit(pod);
        {
          const std::lock_guard lock(ended_mutex_);
          ++running_;
        }
        // Detached, because there may be any number of them.
        std::thread([this, pod, admitted = std::move(admitted)] {
          RunPod(pod, admitted);
          for (const char* end : {".out", ".err"}) {
            std::error_code error;
            std::filesystem::remove(LogPath(pod) + end, error);
          }
          const std::lock_guard lock(ended_mutex_);
          --running_;
          ended_changed_.notify_all();
        }).detach();
      }
    }
    std::unique_lock lock(ended_mutex_);
    ended_changed_.wait(lock, [this] { return running_ == 0; });
    return is_read;
  }

 private:
  absl::StatusOr<FakePod> Admit(const ScenarioPod& pod) {
    const std::lock_guard lock(admission_);
    FakePodSpec spec{pod.pod_namespace, pod.name, {{"main", pod.slots, false, pod.resource}}};
    return kubelet_->Admit(spec);
  }

  std::string LogPath(const ScenarioPod& pod) const {
    return absl::StrCat(log_directory_, "/", pod.pod_namespace, "_", pod.name);
  }

  void RunPod(const ScenarioPod& pod, const absl::StatusOr<FakePod>& admitted) {
    JsonLine line;
    line.Text("namespace", pod.pod_namespace).Text("pod", pod.name);
    line.Number("slots", static_cast<uint64_t>(pod.slots));
    line.Text("program", std::filesystem::path(pod.command[0]).filename().string());
    absl::Status refusal = admitted.status();
    FakeContainer container;
    if (refusal.ok()) {
      absl::StatusOr<FakeContainer> prepared =
          kubelet_->PrepareStart(pod.pod_namespace, pod.name, "main");
      refusal = prepared.status();
      if (prepared.ok()) container = *std::move(prepared);
    }
    const std::string log = LogPath(pod);
    absl::StatusOr<ProcessResult> result = ProcessResult{};
    if (!refusal.ok()) result = refusal;
    if (refusal.ok()) {
      result = RunProcess(pod.command, ContainerEnvironment(container, pod.env), log + ".out",
                          log + ".err", std::chrono::seconds(pod.timeout_seconds));
    }
    if (!result.ok()) {
      all_ran_ = false;
      line.Text("phase", "Refused").Text("message", std::string(result.status().message()));
      if (!admitted.ok()) {
        line.Text("reason", kubelet_->StatusOf(pod.pod_namespace, pod.name)->reason);
      }
    } else {
      if (result->timed_out) all_ran_ = false;
      line.Text("phase", result->exit_code == 0 ? "Succeeded" : "Failed");
      line.Text("message",
                result->timed_out ? absl::StrCat("killed after ", pod.timeout_seconds, " s") : "");
      line.Number("exit_code", static_cast<uint64_t>(result->exit_code < 0 ? 128 + result->signal
                                                                           : result->exit_code));
      line.Number("signal", static_cast<uint64_t>(result->signal));
      line.Number("duration_ms", static_cast<uint64_t>(result->duration.count()));
      line.Text("stdout", ReadTail(log + ".out")).Text("stderr", ReadTail(log + ".err"));
      if (const auto state = AskSchedulerAtTheEnd(container); state.has_value()) {
        line.Text("trust_domain",
                  std::string_view(state->trust_domain,
                                   strnlen(state->trust_domain, sizeof(state->trust_domain))));
        line.Number("quota_bytes", state->memory_quota_bytes);
        line.Number("memory_peak_bytes", state->memory_peak_bytes);
        line.Number("memory_refused", state->memory_refused_count);
        line.Number("kernels", state->kernels_launched);
      }
    }
    kubelet_->RemovePod(pod.pod_namespace, pod.name);
    const std::lock_guard lock(output_);
    std::printf("%s\n", line.Finish().c_str());
    std::fflush(stdout);
  }

  void Ended(const ScenarioPod& pod) {
    {
      const std::lock_guard lock(ended_mutex_);
      ended_.insert({pod.pod_namespace, pod.name});
    }
    ended_changed_.notify_all();
  }
  void WaitFor(const std::string& pod_namespace, const std::string& pod) {
    std::unique_lock lock(ended_mutex_);
    ended_changed_.wait(lock, [&] { return ended_.contains({pod_namespace, pod}); });
  }

  FakeKubelet* const kubelet_;
  const std::string log_directory_;
  std::atomic<bool> all_ran_ = true;
  std::mutex admission_;
  std::mutex output_;
  std::mutex ended_mutex_;
  std::condition_variable ended_changed_;
  std::set<std::pair<std::string, std::string>> ended_;
  int running_ = 0;  // of a stream
};

int Main(int argc, char** argv) {
  std::string directory, scenario_path, log_directory, resource = "gpuloom.io/gpu";
  int wait_seconds = 60;
  size_t wait_devices = 1;
  bool ready = false, ignores_preference = false;
  CLI::App app("fake-kubelet: a kubelet stand-in that runs a scenario's pods as local processes");
  app.add_option("--dir", directory,
                 "its directory: device-plugins/ and pod-resources/ are made there")
      ->required();
  app.add_option("--scenario", scenario_path,
                 "the pods to run (YAML); - runs pods as they come on standard input, one a line")
      ->required()
      ->check(CLI::ExistingFile | CLI::IsMember({"-"}));
  app.add_option("--logs", log_directory, "where the pods' output goes; default: <dir>/logs");
  app.add_option("--resource-name", resource, "what the pods ask for")->capture_default_str();
  app.add_option("--wait-seconds", wait_seconds, "how long to wait for the plugin's devices")
      ->capture_default_str();
  app.add_option("--wait-devices", wait_devices, "how many devices to wait for")
      ->capture_default_str();
  app.add_flag("--ready", ready, "print a first line when the sockets are there");
  app.add_flag("--ignore-preference", ignores_preference,
               "take devices of one GPU after the other");
  CLI11_PARSE(app, argc, argv);

  signal(SIGPIPE, SIG_IGN);
  // Told to stop, it takes its containers along.
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    signal(number, [](int received) {
      KillRunningProcesses();
      _exit(128 + received);
    });
  }
  const bool is_stream = scenario_path == "-";
  absl::StatusOr<std::vector<ScenarioPod>> pods = std::vector<ScenarioPod>();
  if (!is_stream) {
    std::ostringstream text;
    text << std::ifstream(scenario_path).rdbuf();
    pods = ParseScenario(text.str());
  }
  if (!pods.ok()) {
    std::fprintf(stderr, "fake-kubelet: %s: %s\n", scenario_path.c_str(),
                 std::string(pods.status().message()).c_str());
    return 2;
  }
  if (log_directory.empty()) log_directory = directory + "/logs";
  std::error_code error;
  std::filesystem::create_directories(log_directory, error);

  FakeKubelet::Habits habits;
  habits.follows_preference = !ignores_preference;
  FakeKubelet kubelet(directory, resource, habits);
  absl::Status status = kubelet.Start();
  if (status.ok() && ready) {
    std::printf("%s\n", JsonLine().Text("ready", kubelet.plugin_directory()).Finish().c_str());
    std::fflush(stdout);
  }
  if (status.ok())
    status = kubelet.WaitForDevices(wait_devices, std::chrono::seconds(wait_seconds));
  if (!status.ok()) {
    std::fprintf(stderr, "fake-kubelet: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  ScenarioRun run(&kubelet, log_directory);
  if (is_stream) return run.RunStream(std::cin) ? 0 : 1;
  return run.Run(*pods) ? 0 : 1;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Main(argc, argv); }
