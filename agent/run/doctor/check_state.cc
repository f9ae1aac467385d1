// SPDX-License-Identifier: Apache-2.0
// The agent's state folder: who may enter it, whether containers can load libraries from it, whether there is room,
// and the libraries themselves; and what lies beside this program.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "agent/answer/table.h"
#include "agent/node/agent_lock.h"
#include "agent/node/node_folders.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"
#include "agent/run/executor_program.h"
#include "agent/run/installation.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/messages.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

// An agent writes some MiB of libraries and KiB of records; a scheduler's log is bounded. Below the first the next
// record may not be written, and below the second a disk that others fill is soon below the first.
constexpr uint64_t kFewBytes = uint64_t{16} << 20;
constexpr uint64_t kLowBytes = uint64_t{256} << 20;
constexpr uint64_t kFewFiles = 100;

// "0.2.0" of "0.2.0 (1a2b3c4d5e6f)".
std::string OwnRelease() {
  const std::string version = kVersion;
  return version.substr(0, version.find(' '));
}

Finding Access(const std::string& root, const std::string& folder) {
  struct stat status = {};
  if (stat((root + folder).c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return {"state folder", Verdict::kError, folder + " is no folder that this user can see",
            "run as root"};
  }
  // A process that can enter the folder can connect to any tenant's socket, and is then that tenant.
  if ((status.st_mode & 07777) != 0700) {
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", status.st_mode & 07777);
    return {
        "state folder", Verdict::kError,
        folder + " has the mode " + mode + ": others on the node may reach tenants' sockets in it",
        "chmod 0700 " + folder + ", and find out who has changed it"};
  }
  return {"state folder", Verdict::kOk, folder + " is closed to others", ""};
}

Findings Room(const DoctorCommand& command, const std::string& folder) {
  // No finding if the file system cannot be queried.
  const std::optional<FileSystem> system = command.file_system(command.root + folder);
  if (!system) return {};
  Findings findings;
  if (system->forbids_exec) {
    findings.push_back(
        {"state folder", Verdict::kError,
         folder +
             " is on a file system mounted noexec, from which containers cannot load libraries",
         "another folder: value stateDir, or mount it without noexec"});
  }
  const std::string room = RoundedSize(system->free_bytes) + " free in " + folder;
  if (system->free_bytes < kFewBytes || system->free_files < kFewFiles) {
    findings.push_back(
        {"disk space", Verdict::kError,
         room + (system->free_files < kFewFiles ? ", and hardly a file more can be made" : "") +
             ": containers with slots will not start",
         "make room: df -h and df -i of " + folder});
  } else if (system->free_bytes < kLowBytes) {
    findings.push_back({"disk space", Verdict::kWarning, room, "make room: df -h " + folder});
  } else {
    findings.push_back({"disk space", Verdict::kOk, room, ""});
  }
  return findings;
}

// Checked by opening the folder, because root can open it whatever its mode.
bool IsClosed(const std::string& folder) {
  const channel::UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return !fd.valid() && errno == EACCES;
}

// The files that containers have mounted: each kind must be there and readable by any user, and one
// must be of this release.
Finding Libraries(const std::string& root, const std::string& folder) {
  std::string missing;
  bool is_own_release = false;
  for (const std::string begin :
       {"libgpuloom-", "libgpuloom-nvml-", "gpuloom-trace-", "empty-i386.so"}) {
    bool is_there = false;
    // As the agent's shim store divides them (agent/plugin/shim_store.h).
    const std::string below = begin == "gpuloom-trace-" ? "programs/" : "shim/";
    for (const std::string& name :
         NamesIn(std::string(root).append(folder).append("/").append(below))) {
      if (!name.starts_with(begin) ||
          (begin == "libgpuloom-" && name.starts_with("libgpuloom-nvml-")))
        continue;
      std::string path = folder;
      path.append("/").append(below).append(name);
      struct stat status = {};
      if (stat((root + path).c_str(), &status) != 0 || status.st_size == 0 ||
          (status.st_mode & 0444) != 0444) {
        return {"libraries", Verdict::kError, path + " cannot be read by containers",
                "delete it and restart the agent, which writes it anew"};
      }
      is_there = true;
      is_own_release |=
          begin == "libgpuloom-" && name.starts_with("libgpuloom-" + OwnRelease() + "-");
    }
    if (!is_there) {
      missing +=
          (missing.empty() ? "" : ", ") + below + (begin.ends_with("-") ? begin + "…" : begin);
    }
  }
  if (!missing.empty()) {
    return {"libraries", Verdict::kError, "not in " + folder + ": " + missing,
            "restart the agent, which writes them; its log says why it cannot"};
  }
  if (!is_own_release) {
    return {"libraries", Verdict::kWarning,
            "the agent's libraries are not of this program's release, " + OwnRelease(),
            "ask the gpuloom beside that agent, or update the agent"};
  }
  return {"libraries", Verdict::kOk, "in " + folder + "/shim, of this release", ""};
}

// Running executors may have been started from an older file.
Findings Executor(const std::string& program) {
  const ExecutorProgram its = AskExecutorProgram(program);
  const char* const remedy = "install the whole of gpuloom, of one release";
  if (its.version.empty()) return {{"installation", Verdict::kError, its.trouble, remedy}};
  Findings findings;
  if (!its.cupti.empty())
    findings.push_back({"CUPTI", Verdict::kOk, "installed: " + its.cupti, ""});
  if (!its.why_no_cupti.empty()) {
    findings.push_back(
        {"CUPTI", Verdict::kOk, "installed: " + std::string(kNoCupti) + its.why_no_cupti, ""});
  }
  if (its.version != kVersion) {
    findings.push_back(
        {"installation", Verdict::kWarning,
         "gpuloom-executor is of another release, " + its.version + "; this is " + kVersion,
         remedy});
  }
  return findings;
}

// What an agent has set aside because it could not read it, below <state>: files that end in .bad.
std::vector<std::string> SetAside(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string below : {"/", "/records/"}) {
    for (const std::string& name : NamesIn(folder + below)) {
      if (name.ends_with(".bad")) names.push_back(below + name);
    }
  }
  return names;
}

// Of an agent, and nothing of gpuloom runs any more.
bool IsLeftBehind(const std::string& folder) {
  if (!LacksAgent(folder)) return false;
  const std::string gpus = folder + "/gpus/";
  for (const std::string& gpu : NamesIn(gpus)) {
    const SocketState state = ProbeSocket(gpus + gpu, control::kControlSocketName);
    if (state == SocketState::kListening || state == SocketState::kClosed) return false;
  }
  return true;
}

Findings Leftovers(const std::string& root, const std::string& folder) {
  Findings findings;
  const std::vector<std::string> aside = SetAside(root + folder);
  if (!aside.empty()) {
    const std::string more =
        aside.size() == 1 ? "" : " and " + std::to_string(aside.size() - 1) + " more";
    findings.push_back({"state folder", Verdict::kWarning,
                        "an agent could not read, and has set aside: " + folder + aside[0] + more,
                        "its log said why; delete them when nobody needs them for that"});
  }
  if (IsLeftBehind(root + folder)) {
    findings.push_back(
        {"state folder", Verdict::kWarning,
         "no agent and no scheduler runs, and an installation has left " + folder,
         "if gpuloom is gone from this node for good, delete the folder; else start the agent"});
  }
  return findings;
}

Finding Program(const std::string& program) {
  Installation installation;
  std::string error;
  if (!FindInstallation(program, &installation, &error)) {
    return {"installation", Verdict::kError, error,
            "install the whole of gpuloom, bin/ and lib/, beside each other"};
  }
  return {"installation", Verdict::kOk, std::string("gpuloom ") + kVersion + " is complete", ""};
}

}  // namespace

Findings CheckState(const DoctorCommand& command) {
  Findings findings = {Program(command.program)};
  if (findings[0].verdict == Verdict::kOk) {
    for (Finding& finding : Executor(command.program)) findings.push_back(std::move(finding));
  }
  const std::string folder = command.state_dir.empty() ? AgentsStateDir() : command.state_dir;
  if (!Exists(command.root + folder)) {
    if (!Exists(command.root + command.kubelet_dir)) {
      findings.push_back(
          {"state folder", Verdict::kOk, "no agent has run here (" + folder + ")", ""});
    } else {
      findings.push_back(
          {"state folder", Verdict::kError,
           "there is a kubelet, and no agent has run here: " + folder,
           "install gpuloom on this node; if the agent's state folder is another: --state-dir"});
    }
    return findings;
  }
  if (IsClosed(command.root + folder)) {
    findings.push_back({"state folder", Verdict::kError, folder + " is closed to this user",
                        "run it as root: what is there is not known"});
    return findings;
  }
  findings.push_back(Access(command.root, folder));
  // One scheduler's, of `gpuloom run`: nothing is kept there for an agent.
  if (Exists(command.root + folder + "/" + control::kControlSocketName)) return findings;
  for (Finding& finding : Room(command, folder)) findings.push_back(std::move(finding));
  findings.push_back(Libraries(command.root, folder));
  for (Finding& finding : Leftovers(command.root, folder)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gpuloom::run
