// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_search.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "agent/node/agent_lock.h"
#include "agent/node/node_folders.h"
#include "agent/node/one_line.h"
#include "agent/run/doctor/look.h"
#include "agent/run/state_dir.h"
#include "proto/control/connection.h"

namespace gpuloom::run {
namespace {

// Also how NoSchedulerFound recognizes that root would see more.
constexpr char kClosed[] = " is closed to this user";

}  // namespace

std::vector<std::string> SearchedFolders(const std::string& state_dir) {
  if (!state_dir.empty()) return {state_dir};
  const std::string own = DefaultStateDir("gpu");
  // DefaultStateDir names one device's folder; this wants the one that all of them are in.
  return {AgentsStateDir(), kServiceStateDir, own.substr(0, own.rfind('/'))};
}

std::vector<std::string> FindSchedulers(const std::vector<std::string>& folders,
                                        std::string* unseen) {
  namespace fs = std::filesystem;
  std::set<std::string> found;
  const auto look = [&](const fs::path& folder) {
    std::error_code error;
    // A set: a folder may be found from two places.
    if (fs::is_socket(folder / control::kControlSocketName, error) ||
        (IsOfAgent(folder) && fs::is_directory(folder, error))) {
      found.insert(folder);
    }
  };
  for (const std::string& folder : folders) {
    look(folder);
    // `gpuloom run` keeps one folder a GPU, an agent the same in gpus/.
    for (const fs::path& parent : {fs::path(folder), fs::path(folder) / "gpus"}) {
      std::error_code error;
      for (auto entry = fs::directory_iterator(parent, error);
           !error && entry != fs::directory_iterator(); entry.increment(error)) {
        look(entry->path());
      }
      if (error == std::errc::permission_denied) {
        *unseen += "; " + parent.string() + kClosed;
        break;
      }
    }
  }
  return {found.begin(), found.end()};
}

// Decided by the path alone: an agent's folders lie in gpus/, those of `gpuloom run` do not.
bool IsOfAgent(const std::string& folder) {
  const std::filesystem::path path(folder);
  return path.has_filename() && path.parent_path().filename() == "gpus";
}

bool LacksScheduler(const std::string& folder) {
  if (!IsOfAgent(folder)) return false;
  const SocketState state = ProbeSocket(folder, control::kControlSocketName);
  return state == SocketState::kMissing || state == SocketState::kDead;
}

std::string NoSchedulerRuns(const std::string& folder) {
  return "no scheduler runs for " +
         OneLine(std::filesystem::path(folder).filename().string(), kLongestNameBytes) +
         ", whose pods have no GPU: gpuloom doctor says what to do";
}

bool HasNoGpu(const std::vector<std::string>& folders) {
  return std::ranges::any_of(folders, [](const std::string& folder) {
    const std::filesystem::path gpus = std::filesystem::path(folder) / "gpus";
    std::error_code error;
    const bool is_empty = std::filesystem::is_empty(gpus, error);
    return HasHadAgent(folder) &&
           (error ? error == std::errc::no_such_file_or_directory : is_empty);
  });
}

std::string NoSchedulerFound(const std::vector<std::string>& folders, const std::string& unseen) {
  if (unseen.empty() && HasNoGpu(folders)) return kNoGpu;
  std::string where;
  for (const std::string& folder : folders) where += (where.empty() ? "" : ", ") + folder;
  const bool is_closed = unseen.find(kClosed) != unseen.npos;
  return "no scheduler is found in " + where + unseen + ": " +
         (is_closed ? "run it as root" : "name the agent's state folder with --state-dir");
}

}  // namespace gpuloom::run
