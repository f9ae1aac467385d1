// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/node/lock_file.h"
#include "agent/node/log_line.h"
#include "agent/node/process.h"
#include "agent/run/tenant_folder.h"

namespace gpuloom::run {
namespace {

using Clock = std::chrono::steady_clock;

// Exit statuses of gpuloom-scheduler that are handled here.
constexpr int kNoGpu = 3;
constexpr int kAlreadyRunning = 4;

// A log that has grown beyond this is begun anew with the next scheduler.
constexpr off_t kMaxLogBytes = 1 << 20;

// Returns false where the process that listens at the socket is not known, as in other namespaces.
bool PeerOf(int socket, ucred* peer) {
  socklen_t size = sizeof(*peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, peer, &size) == 0 && peer->pid > 0;
}

// A scheduler that this process has started, while it is our child. It outlives us without notice.
class Started {
 public:
  explicit Started(const SchedulerTarget& target)
      : target_(target), log_path_(target.state_dir + "/scheduler.log") {}

  bool running() const { return pid_ > 0; }
  [[nodiscard]] bool Start(std::string* error);
  // True once it has ended; *status is its exit status.
  [[nodiscard]] bool Ended(int* status);
  // Ends it if another scheduler serves us; otherwise it would wait for that one to end, and then
  // have no tenants.
  void EndUnlessReached(const control::Client& client) const;
  // What it has written to its log since it was started.
  std::string Output() const;
  const std::string& log_path() const { return log_path_; }

 private:
  const SchedulerTarget& target_;
  std::string log_path_;
  off_t log_begin_ = 0;
  pid_t pid_ = 0;
};

bool Started::Start(std::string* error) {
  struct stat status;
  // Nobody writes to it: a scheduler that runs holds the lock, and then none is started.
  if (stat(log_path_.c_str(), &status) == 0 && status.st_size > kMaxLogBytes) {
    unlink(log_path_.c_str());
  }
  log_begin_ = stat(log_path_.c_str(), &status) == 0 ? status.st_size : 0;

  const std::vector<std::string> arguments = {
      target_.program,   "--gpu",          target_.gpu,          "--state-dir",
      target_.state_dir, "--cuda-library", target_.cuda_library, "--exit-when-unused"};
  std::vector<char*> envp;
  std::string library_path = "LD_LIBRARY_PATH=" + WithoutOuterFolder(getenv("LD_LIBRARY_PATH"));
  for (char* const* variable = environ; *variable != nullptr; ++variable) {
    // Libraries that are preloaded or put into the path for the command are not for the scheduler.
    if (strncmp(*variable, "LD_PRELOAD=", 11) == 0) continue;
    const bool is_path = strncmp(*variable, "LD_LIBRARY_PATH=", 16) == 0;
    envp.push_back(is_path ? library_path.data() : *variable);
  }
  envp.push_back(nullptr);

  const int result = StartDetached(arguments, envp.data(), log_path_, &pid_);
  if (result != 0) {
    pid_ = 0;
    *error = "cannot start " + target_.program + ": " + strerror(result);
    return false;
  }
  return true;
}

bool Started::Ended(int* status) {
  int wait_status = 0;
  if (pid_ <= 0 || waitpid(pid_, &wait_status, WNOHANG) != pid_) return false;
  pid_ = 0;
  // The status as shells report it.
  *status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  return true;
}

void Started::EndUnlessReached(const control::Client& client) const {
  ucred peer{};
  // By SIGKILL: without the lock it has done nothing yet, and it handles signals only once it has
  // it.
  if (running() && PeerOf(client.fd(), &peer) && peer.pid != pid_) kill(pid_, SIGKILL);
}

std::string Started::Output() const {
  const channel::UniqueFd log(open(log_path_.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t size = pread(log.get(), text.data(), text.size(), log_begin_);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  std::string said;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view whole = std::string_view(text).substr(begin, end - begin);
    const std::optional<LogLine> line = ParseLogLine(whole);
    if (!said.empty()) said += '\n';
    // Without time and level, which say nothing in an error; what a library has written has
    // neither.
    said += line ? line->text : whole;
  }
  return said;
}

// The scheduler's own words, and what to do about the commonest reasons.
std::string WhyItEnded(const SchedulerTarget& target, const Started& started, int status) {
  const std::string output = started.Output();
  if (status == kNoGpu && output.find("cannot load") != std::string::npos) {
    if (target.softgpu) return "the software GPU is not installed: " + output;
    return "no NVIDIA driver found: " + output + "\ngpuloom: without a GPU use --softgpu";
  }
  if (status == kNoGpu) {
    return "no GPU to use: " + output + "\ngpuloom: nvidia-smi -L shows the GPUs of this machine";
  }
  return "the scheduler ended with status " + std::to_string(status) + ": " + output;
}

using Settings = std::set<std::string>;

// Whether softgpu reads this variable when it starts.
bool IsSetting(std::string_view variable) { return variable.starts_with("GPULOOM_SOFTGPU_"); }

Settings OurSettings() {
  Settings settings;
  for (char* const* variable = environ; *variable != nullptr; ++variable) {
    if (IsSetting(*variable)) settings.insert(*variable);
  }
  return settings;
}

// Reads the settings of the process that listens at the socket. Returns false if that is not
// possible.
bool SettingsOfScheduler(int socket, Settings* settings) {
  ucred peer{};
  if (!PeerOf(socket, &peer)) return false;
  std::ifstream environment("/proc/" + std::to_string(peer.pid) + "/environ", std::ios::binary);
  if (!environment) return false;
  for (std::string variable; std::getline(environment, variable, '\0');) {
    if (IsSetting(variable)) settings->insert(variable);
  }
  return true;
}

std::string Listed(const Settings& settings) {
  std::string text;
  for (const std::string& setting : settings) text += (text.empty() ? "" : " ") + setting;
  return text.empty() ? "none" : text;
}

// Returns true if the software GPU that answered has our settings. Returns false without a message
// if it has others but no user, and so ends when we disconnect.
bool HasOurSettings(const SchedulerTarget& target, control::Client* client, std::string* error) {
  const Settings ours = OurSettings();
  Settings theirs;
  // Not known, as of another user's process: taken for the same rather than refused.
  if (!SettingsOfScheduler(client->fd(), &theirs) || theirs == ours) return true;
  std::vector<control::AllocationState> used;
  std::string gone;
  if (client->ListAllocations(&used, &gone) && !used.empty()) {
    *error = "the software GPU of " + target.state_dir +
             " is in use with other settings (there: " + Listed(theirs) +
             "; here: " + Listed(ours) +
             "): wait for the commands that use it, or name another --state-dir";
  }
  client->Close();
  return false;
}

}  // namespace

bool ReachScheduler(const SchedulerTarget& target, control::Client* client, std::string* error) {
  const Clock::time_point deadline = Clock::now() + target.patience;
  Started started(target);
  std::string connect_error;
  while (Clock::now() < deadline) {
    if (client->Connect(target.state_dir, control::Client::kDefaultTimeout, &connect_error)) {
      started.EndUnlessReached(*client);
      if (!target.softgpu || HasOurSettings(target, client, error)) return true;
      if (!error->empty()) return false;
      connect_error = "one with other settings does not end";
      // Starting a scheduler takes 100 ms, so do not add much; asking again costs only a system
      // call.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    if (client->refused()) {
      *error = connect_error;
      return false;
    }
    int status = 0;
    // Neither is a failure: with kAlreadyRunning another one was faster, and with 0 it found itself
    // unused before we had connected.
    if (started.Ended(&status) && status != kAlreadyRunning && status != 0) {
      *error = WhyItEnded(target, started, status);
      return false;
    }
    // Started again when another one held the lock and has ended since, without answering us. While it
    // holds it, ours would only say so in its log.
    if (!started.running() && !IsLocked(target.state_dir + "/" + control::kLockName) &&
        !started.Start(error)) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  *error = "no scheduler answered in " + std::to_string(target.patience.count()) +
           " s: " + connect_error + "; its log is " + started.log_path();
  return false;
}

}  // namespace gpuloom::run
