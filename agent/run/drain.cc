// SPDX-License-Identifier: Apache-2.0
// The order is a file in the GPU's folder, so draining needs no scheduler, and a scheduler that starts later finds it.
// Schedulers are asked only which tenants are still there.
#include "agent/run/drain.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "agent/answer/table.h"
#include "agent/node/gpu_standing.h"
#include "agent/run/scheduler_figures.h"
#include "agent/run/scheduler_search.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using SteadyTime = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{250};
// An agent starts a scheduler again within half a minute (agent/supervisor/backoff.h), and it knows who has slots.
constexpr std::chrono::seconds kSchedulerReturns{35};
constexpr size_t kLongestName = 300;
// "GPU-" and eight digits: no two GPUs of a machine share them.
constexpr size_t kShortestBeginning = 12;

struct Folder {
  std::string path;
  std::string name;  // the GPU's UUID in an agent's state
};

// The folders in `parent`: all of them, as in an agent's gpus/, or only those in which a scheduler
// has had its lock.
void AddFoldersIn(const fs::path& parent, bool all, std::set<std::string>* found) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(parent, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const bool is_gpu = all ? entry->is_directory(ignored)
                            : fs::is_regular_file(entry->path() / control::kLockName, ignored);
    if (is_gpu) found->insert(entry->path());
  }
}

// Those without a scheduler too: a GPU whose scheduler does not start is the first that one drains.
std::vector<Folder> FindGpus(const std::vector<std::string>& places, std::string* unseen) {
  std::set<std::string> found;
  for (const std::string& folder : FindSchedulers(places, unseen)) found.insert(folder);
  for (const std::string& place : places) {
    AddFoldersIn(fs::path(place) / "gpus", /*all=*/true, &found);
    AddFoldersIn(place, /*all=*/false, &found);
    std::error_code ignored;
    if (fs::is_regular_file(fs::path(place) / control::kLockName, ignored)) found.insert(place);
  }
  std::vector<Folder> folders;
  for (const std::string& path : found) {
    folders.push_back({path, OneLine(fs::path(path).filename().string(), kLongestName)});
  }
  return folders;
}

bool IsMeant(const std::string& gpu, const Folder& folder) {
  return gpu.empty() || folder.name == gpu ||
         (gpu.size() >= kShortestBeginning && folder.name.starts_with(gpu));
}

class Drainage {
 public:
  explicit Drainage(const DrainCommand& command) : command_(command) {}

  Answer Run() {
    if (!FindFolders()) return std::move(answer_);
    for (const Folder& folder : folders_) Order(folder);
    if (!command_.undo) Look();
    if (command_.wait && !command_.undo) Wait();
    if (command_.format == Format::kTable) {
      Say();
    } else {
      SayAsDocument();
    }
    return std::move(answer_);
  }

 private:
  bool Fail(const std::string& trouble) {
    answer_.exit_status = kNotGood;
    answer_.trouble += "gpuloom: " + trouble + "\n";
    return false;
  }

  // All GPUs that are meant; messages list the others.
  bool FindFolders() {
    const std::vector<std::string> places = SearchedFolders(command_.state_dir);
    std::string unseen, others;
    for (Folder& folder : FindGpus(places, &unseen)) {
      if (IsMeant(command_.gpu, folder)) {
        folders_.push_back(std::move(folder));
      } else {
        others += (others.empty() ? "" : ", ") + folder.name;
      }
    }
    if (!folders_.empty()) return true;
    if (!others.empty()) {
      return Fail("no GPU " + OneLine(command_.gpu, kLongestName) +
                  " is here; these are: " + others);
    }
    return Fail(NoSchedulerFound(places, unseen));
  }

  // A failure is reported, and the other GPUs are drained all the same.
  void Order(const Folder& folder) {
    const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    std::string error;
    const bool done = command_.undo ? RemoveDrainOrder(folder.path, &error)
                                    : WriteDrainOrder(folder.path, {now, command_.reason}, &error);
    if (!done) Fail(error);
  }

  // Who is still there.
  void Look() {
    AllFigures all = AskSchedulers(command_.state_dir);
    schedulers_.clear();
    troubles_.clear();
    for (SchedulerFigures& scheduler : all.schedulers) {
      const bool is_meant = std::ranges::any_of(
          folders_, [&](const Folder& folder) { return folder.path == scheduler.folder; });
      if (is_meant) schedulers_.push_back(std::move(scheduler));
    }
    if (!all.none_found) troubles_ = std::move(all.troubles);
    silent_.clear();
    for (const std::string& folder : all.missing) {
      for (const Folder& meant : folders_) {
        if (meant.path == folder) silent_.push_back(meant.name);
      }
    }
  }

  size_t Tenants() const {
    size_t tenants = 0;
    for (const SchedulerFigures& scheduler : schedulers_) tenants += scheduler.allocations.size();
    return tenants;
  }

  // Waits until every scheduler has answered that it has no tenants: one that does not answer may have some.
  void Wait() {
    const auto begin = SteadyTime::now();
    const auto may_return = begin + kSchedulerReturns;
    while (Tenants() != 0 || !troubles_.empty() ||
           (!silent_.empty() && SteadyTime::now() < may_return)) {
      if (command_.timeout && SteadyTime::now() - begin >= *command_.timeout) {
        // An order that failed is worse than tenants that stay.
        if (answer_.exit_status == kGood) answer_.exit_status = kPartly;
        return;
      }
      std::this_thread::sleep_for(kLookAgain);
      Look();
    }
    // Nobody computes there, but a pod may hold slots and come back with the scheduler.
    if (!silent_.empty() && answer_.exit_status == kGood) answer_.exit_status = kPartly;
  }

  // Reads the folders again, to report the GPUs' actual state, whichever command has ordered it.
  void Say() {
    for (const Folder& folder : folders_) {
      const std::string why = DrainedBecause(folder.path);
      answer_.text += folder.name + (why.empty() ? " is open to everybody\n" : " is " + why + "\n");
    }
    for (const std::string& trouble : troubles_) Fail(trouble);
    if (command_.undo) return;
    NoteSilent();
    if (Tenants() == 0) {
      if (troubles_.empty() && silent_.empty()) answer_.text += "nobody is there any more\n";
      return;
    }
    std::vector<std::vector<std::string>> rows = {
        {"NAMESPACE", "POD", "CONTAINER", "GPU", "SLOTS", "PROCESSES", "STATE"}};
    for (const SchedulerFigures& scheduler : schedulers_) {
      for (const control::AllocationState& state : scheduler.allocations) {
        rows.push_back({Text(state.pod_namespace), Text(state.pod), Text(state.container),
                        scheduler.name(), std::to_string(state.slots),
                        std::to_string(state.sessions), StateOf(state)});
      }
    }
    std::sort(rows.begin() + 1, rows.end());
    answer_.text += FormatTable(rows);
    answer_.trouble += "gpuloom: " + std::to_string(Tenants()) +
                       (Tenants() == 1 ? " tenant is" : " tenants are") +
                       " still there, and nothing is taken from them: delete their pods, or wait "
                       "with --wait\n";
  }

  // A GPU whose scheduler does not start can be drained all the same.
  void NoteSilent() {
    for (const std::string& gpu : silent_) {
      answer_.trouble += "gpuloom: no scheduler runs for " + gpu +
                         ", so nobody uses it, and who has its slots is not known\n";
    }
  }

  void SayAsDocument() {
    Json document = {{"gpus", Json::array()}};
    for (const Folder& folder : folders_) {
      const auto order = ReadDrainOrder(folder.path);
      Json gpu = {{"gpu", folder.name},
                  {"drained", order.has_value()},
                  {"reason", order ? order->reason : ""},
                  {"since", order ? Json(order->since_unix_s) : Json()},
                  {"tenants", Json::array()}};
      for (const SchedulerFigures& scheduler : schedulers_) {
        if (scheduler.folder != folder.path) continue;
        for (const control::AllocationState& state : scheduler.allocations) {
          gpu["tenants"].push_back({{"namespace", Text(state.pod_namespace)},
                                    {"pod", Text(state.pod)},
                                    {"container", Text(state.container)},
                                    {"slots", state.slots},
                                    {"processes", state.sessions},
                                    {"state", StateOf(state)}});
        }
      }
      document["gpus"].push_back(std::move(gpu));
    }
    for (const std::string& trouble : troubles_) Fail(trouble);
    if (!command_.undo) NoteSilent();
    answer_.text += FormatDocument(document, command_.format);
  }

  const DrainCommand& command_;
  Answer answer_;
  std::vector<Folder> folders_;
  std::vector<SchedulerFigures> schedulers_;
  std::vector<std::string> troubles_;  // schedulers that do not say who is there
  std::vector<std::string> silent_;    // GPUs of an agent for which none runs
};

}  // namespace

Answer Drain(const DrainCommand& command) { return Drainage(command).Run(); }

}  // namespace gpuloom::run
