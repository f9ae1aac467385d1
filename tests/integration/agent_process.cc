// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// As a careful editor would: nobody sees half of it.
void Replace(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  fs::rename(path + ".new", path);
}

}  // namespace

AgentNode::AgentNode(int gpus, int slots, std::string shim, FakeKubelet::Takeover takeover)
    : gpus_(gpus), slots_(slots), shim_(std::move(shim)) {
  // Below /tmp whatever TMPDIR says: the names of sockets must be short.
  std::string name = "/tmp/gpuloom-agent-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) abort();
  directory_ = name;
  if (shim_.empty()) {
    shim_ = directory_ + "/libgpuloom.so";
    std::ofstream(shim_) << "\177ELF: no container of these tests loads it";
  }
  nvml_ = directory_ + "/libgpuloom-nvml.so";
  std::ofstream(nvml_) << "\177ELF: no container of these tests loads this one";
  WritePolicy("{}\n");
  FakeKubelet::Habits habits;
  habits.pre_start_tries = 1;
  habits.takeover = takeover;
  kubelet_.emplace(directory_, "gpuloom.io/gpu", habits);
}

AgentNode::~AgentNode() {
  KillAgent(SIGKILL);
  if (api_server_ != 0) {
    kill(api_server_, SIGKILL);
    waitpid(api_server_, nullptr, 0);
  }
  const std::vector<pid_t> schedulers = SchedulerPids();
  for (const pid_t pid : schedulers) kill(pid, SIGTERM);
  (void)WaitFor([&] {
    for (const pid_t pid : schedulers) {
      if (kill(pid, 0) == 0) return false;
    }
    return true;
  });
  kubelet_.reset();
  std::error_code error;
  fs::remove_all(directory_, error);
}

std::vector<std::string> AgentNode::Arguments() const {
  return {GPULOOM_AGENT_PATH,
          "--state-dir",
          state_directory(),
          "--kubelet-dir",
          kubelet_->plugin_directory(),
          "--pod-resources-socket",
          kubelet_->pod_resources_socket(),
          "--softgpu",
          GPULOOM_SOFTGPU_PATH,
          "--scheduler",
          GPULOOM_SCHEDULER_PATH,
          "--shim",
          shim_,
          "--nvml",
          nvml_,
          "--policy",
          PolicyPath(),
          "--slots",
          std::to_string(slots_),
          "--idle-timeout",
          "1s",
          "--drain-timeout",
          "1s"};
}

pid_t AgentNode::Spawn(const std::vector<std::string>& arguments, const std::string& output,
                       const std::string& library_path) const {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> settings = {
      "GPULOOM_SOFTGPU_DEVICES=" + std::to_string(gpus_), "GPULOOM_SOFTGPU_MEMORY=" + memory_,
      "GPULOOM_SOFTGPU_QUIET=1", "GPULOOM_SOFTGPU_LOST=" + LostPath(),
      "GPULOOM_NVML_FIXTURE=" + NvmlEventsPath()};
  if (!library_path.empty()) settings.push_back("LD_LIBRARY_PATH=" + library_path);
  std::vector<char*> envp;
  for (std::string& setting : settings) envp.push_back(setting.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = 0;
  if (posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), envp.data()) != 0) pid = 0;
  posix_spawn_file_actions_destroy(&files);
  return pid;
}

void AgentNode::StartAgent(const std::vector<std::string>& more_arguments) {
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  ++agents_;
  agent_ = Spawn(arguments, LogPath());
}

bool AgentNode::ReplaceAgent(const std::vector<std::string>& more_arguments) {
  const pid_t old = std::exchange(agent_, 0);
  StartAgent(more_arguments);
  const bool is_ready = WaitForLog("agent: ready");
  kill(old, SIGTERM);
  waitpid(old, nullptr, 0);
  return is_ready;
}

void AgentNode::StartAgentWithNvml(const std::string& library,
                                   const std::vector<std::string>& more_arguments) {
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  const auto softgpu = std::find(arguments.begin(), arguments.end(), "--softgpu");
  arguments.erase(softgpu, softgpu + 2);
  const std::string folder = directory_ + "/driver";
  fs::create_directory(folder);
  fs::remove(folder + "/libnvidia-ml.so.1");
  fs::create_symlink(library, folder + "/libnvidia-ml.so.1");
  ++agents_;
  agent_ = Spawn(arguments, LogPath(), folder);
}

std::string AgentNode::RunAgentProbe(const std::string& flag,
                                     const std::vector<std::string>& more_arguments) {
  const std::string path = directory_ + "/probe.log";
  fs::remove(path);
  std::vector<std::string> arguments = {GPULOOM_AGENT_PATH,           "--softgpu",
                                        GPULOOM_SOFTGPU_PATH,         "--kubelet-dir",
                                        kubelet_->plugin_directory(), flag};
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  int status = 0;
  waitpid(Spawn(arguments, path), &status, 0);
  const std::string said = ReadAll(path);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return said.empty() ? "failed without a word" : said;
}

int AgentNode::MetricsPort() const {
  const std::string url = "metrics: serving at http://127.0.0.1:";
  if (!WaitForLog(url)) return 0;
  const std::string log = AgentLog();
  return std::stoi(log.substr(log.find(url) + url.size()));
}

std::string AgentNode::LostPath() const { return directory_ + "/lost"; }
std::string AgentNode::NvmlEventsPath() const { return directory_ + "/nvml-events"; }

void AgentNode::LoseGpus(bool are_lost) const {
  if (are_lost) return Replace(LostPath(), "all");
  // A probe that succeeds while NVML says that the GPU is lost would only make it sick once more.
  ForgetNvmlEvents();
  fs::remove(LostPath());
}

void AgentNode::TakeNameOfGpu(int number) const {
  Replace(NvmlEventsPath(), "nameless " + std::to_string(number) + "\n");
}

void AgentNode::HangAtGpu(int number) const {
  Replace(NvmlEventsPath(), "hang " + std::to_string(number) + "\n");
}

void AgentNode::ForgetNvmlEvents() const { Replace(NvmlEventsPath(), ""); }

void AgentNode::LoseGpu(int number) const {
  const std::string text = std::to_string(number);
  Replace(LostPath(), text);
  Replace(NvmlEventsPath(), "xid " + text + " 79\nlost " + text + "\n");
}

std::vector<std::string> AgentNode::StartApiServer(const std::string& pods_json) {
  const std::string folder = directory_ + "/api-server";
  fs::create_directory(folder);
  WritePods(pods_json);
  api_server_ = Spawn({GPULOOM_PYTHON, GPULOOM_FAKE_API_SERVER, folder}, folder + "/output");
  if (!WaitFor([&] { return fs::exists(folder + "/port"); })) return {};
  return {"--events",
          "--node-name",
          "node-1",
          "--api-server",
          "https://127.0.0.1:" + ReadAll(folder + "/port"),
          "--service-account",
          folder + "/account"};
}

void AgentNode::WritePods(const std::string& pods_json) const {
  Replace(directory_ + "/api-server/state.json", "{\"token\": \"t\", \"pods\": " + pods_json + "}");
}

std::string AgentNode::ApiServerLog() const { return ReadAll(directory_ + "/api-server/log"); }

std::string AgentNode::RunGpuloom(const std::vector<std::string>& arguments,
                                  int* exit_status) const {
  const std::string path = directory_ + "/gpuloom.log";
  fs::remove(path);
  std::vector<std::string> command = {GPULOOM_OPERATORS_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), {"--state-dir", state_directory()});
  int status = 0;
  waitpid(Spawn(command, path), &status, 0);
  *exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ReadAll(path);
}

pid_t AgentNode::StartFurtherAgent(const std::vector<std::string>& more_arguments) const {
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  return Spawn(arguments, directory_ + "/further.log");
}

void AgentNode::KillAgent(int signal) {
  if (agent_ == 0) return;
  kill(agent_, signal);
  waitpid(agent_, nullptr, 0);
  agent_ = 0;
}

int AgentNode::RunSecondAgent(std::string* output) {
  const std::string path = directory_ + "/second.log";
  const pid_t pid = Spawn(Arguments(), path);
  int status = 0;
  waitpid(pid, &status, 0);
  *output = ReadAll(path);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void AgentNode::WritePolicy(const std::string& text) const { Replace(PolicyPath(), text); }

std::string AgentNode::LogPath() const {
  return directory_ + "/agent-" + std::to_string(agents_) + ".log";
}

std::string AgentNode::AgentLog() const { return ReadAll(LogPath()); }

bool AgentNode::WaitFor(const std::function<bool()>& condition,
                        std::chrono::seconds patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

bool AgentNode::WaitForLog(const std::string& text) const {
  return WaitFor([&] { return AgentLog().find(text) != std::string::npos; });
}

std::string AgentNode::SchedulerLogs() const {
  std::ostringstream text;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(state_directory() + "/gpus", error)) {
    if (std::ifstream log(entry.path() / "scheduler.log"); log) text << log.rdbuf();
  }
  return text.str();
}

int AgentNode::ExecutorStarts() const {
  int count = 0;
  std::istringstream logs(SchedulerLogs());
  for (std::string line; std::getline(logs, line);) {
    if (line.find("executor of domain") != line.npos && line.ends_with(" started")) ++count;
  }
  return count;
}

std::vector<pid_t> AgentNode::SchedulerPids() const {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(state_directory() + "/gpus", error)) {
    pid_t pid = 0;
    if (std::ifstream(entry.path() / control::kLockName) >> pid && pid > 0 && kill(pid, 0) == 0)
      pids.push_back(pid);
  }
  return pids;
}

}  // namespace gpuloom
