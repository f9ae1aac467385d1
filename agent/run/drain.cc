// SPDX-License-Identifier: Apache-2.0
// The order is a file in the GPU's folder, so draining needs no scheduler, and a scheduler that starts later finds it.
// Schedulers are asked only which tenants are still there.
#include "agent/run/drain.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <tuple>

#include "agent/answer/table.h"
#include "agent/node/agent_lock.h"
#include "agent/node/gpu_standing.h"
#include "agent/node/one_line.h"
#include "agent/run/scheduler_figures.h"
#include "agent/run/scheduler_search.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using SteadyTime = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{250};
// What is not known after this stays so until somebody mends it: an agent starts a scheduler again within half a minute
// (agent/supervisor/backoff.h).
constexpr std::chrono::seconds kBecomesKnown{35};
// "GPU-" and eight digits: fewer are a slip of the hand. They are no promise to be the only ones: software GPUs share them.
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
    folders.push_back({path, OneLine(fs::path(path).filename().string(), kLongestNameBytes)});
  }
  return folders;
}

// Who holds slots of a GPU.
struct Holder {
  std::string allocation;
  std::string pod_namespace, pod, container;  // empty: its pod has not started
  uint64_t slots = 0;
  std::optional<uint64_t> processes;  // none: no scheduler says it
  std::string state;

  std::string name() const {
    return pod.empty() ? "a pod that has not started" : pod_namespace + "/" + pod + "/" + container;
  }
};

struct Holders {
  std::vector<Holder> known;
  std::string unknown;             // why there may be more; empty: these are all
  std::vector<std::string> notes;  // what is wrong there, and does not keep anybody from knowing
};

std::string OrNotSaid(const std::string& text) { return text.empty() ? kNotSaid : text; }

Holder HolderOf(const control::AllocationState& state) {
  return {Text(state.name), Text(state.pod_namespace),
          Text(state.pod),  Text(state.container),
          state.slots,      state.sessions,
          StateOf(state)};
}

Holder HolderOf(const SlotRecord& record) {
  return {record.allocation,
          record.pod_namespace,
          record.pod,
          record.container,
          record.slots,
          std::nullopt,
          record.is_bound ? kNotServed : "not started"};
}

// The records are authoritative; the scheduler adds what running tenants do. It may still have an allocation that the
// agent has just removed.
Holders HoldersOf(const Folder& folder, const AllFigures& all) {
  Holders holders;
  std::set<std::string> served;
  const auto scheduler = std::ranges::find(all.schedulers, folder.path, &SchedulerFigures::folder);
  if (scheduler != all.schedulers.end()) {
    for (const control::AllocationState& state : scheduler->allocations) {
      holders.known.push_back(HolderOf(state));
      served.insert(holders.known.back().allocation);
    }
  }
  for (const SlotRecord& record : all.records) {
    if (record.folder == folder.path && !served.contains(record.allocation)) {
      holders.known.push_back(HolderOf(record));
    }
  }
  std::ranges::sort(holders.known, {}, [](const Holder& holder) {
    return std::tie(holder.pod_namespace, holder.pod, holder.container, holder.allocation);
  });
  if (!IsOfAgent(folder.path)) {
    if (std::ranges::count(all.silent, folder.path, &SchedulerFigures::folder) != 0) {
      holders.unknown = "its scheduler does not answer";
    }
    return holders;
  }
  for (const std::string& trouble : all.record_troubles) {
    if (trouble.starts_with(StateFolderOf(folder.path) + "/")) holders.unknown = trouble;
  }
  // While an agent is in charge, this follows the records by a second.
  const bool lacks_agent = LacksAgent(StateFolderOf(folder.path));
  if (const auto standing = ReadStanding(folder.path);
      lacks_agent && standing && standing->held != 0 && holders.known.empty()) {
    holders.unknown = "the agent has last said that " + std::to_string(standing->held) +
                      " slots are held, and no record says by whom";
  }
  if (std::ranges::count(all.missing, folder.path) != 0) {
    holders.notes.push_back("no scheduler runs for " + folder.name + ", so nobody computes there");
  }
  if (!holders.known.empty() && lacks_agent) {
    holders.notes.emplace_back(
        "no agent is in charge, so slots of pods that have ended stay taken until one is: start "
        "the node's gpuloom-agent pod");
  }
  return holders;
}

// One run of the command: find the GPUs, give the order, look who is there, perhaps wait, and report. The order is a file in
// the GPU's folder, so draining needs no scheduler, and one that starts later finds it.
class Drainage {
 public:
  Drainage(const DrainCommand& command, const OnLine& on_line)
      : command_(command), on_line_(on_line) {}

  Answer Run() {
    if (!FindFolders()) return std::move(answer_);
    bool is_ordered = true;
    for (const Folder& folder : folders_) is_ordered = Order(folder) && is_ordered;
    if (!command_.undo) Look();
    // Where the GPU is still open, there is no end to wait for.
    if (command_.wait && !command_.undo && is_ordered) Wait();
    if (!command_.undo) SayTroubles();
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
    Note(trouble);
    return false;
  }
  void Note(const std::string& trouble) { answer_.trouble += "gpuloom: " + trouble + "\n"; }

  // All GPUs that are meant; messages list the others.
  bool FindFolders() {
    const std::vector<std::string> places = SearchedFolders(command_.state_dir);
    std::string unseen, others, named;
    std::vector<Folder> begin_so;
    for (Folder& folder : FindGpus(places, &unseen)) {
      if (command_.gpu.empty() || folder.name == command_.gpu) {
        folders_.push_back(std::move(folder));
      } else if (command_.gpu.size() >= kShortestBeginning &&
                 folder.name.starts_with(command_.gpu)) {
        begin_so.push_back(std::move(folder));
      } else {
        others += (others.empty() ? "" : ", ") + folder.name;
      }
    }
    if (!folders_.empty()) return true;
    const std::string gpu = OneLine(command_.gpu, kLongestNameBytes);
    // One GPU may have folders in several places.
    if (std::ranges::any_of(
            begin_so, [&](const Folder& folder) { return folder.name != begin_so.front().name; })) {
      for (const Folder& folder : begin_so) named += (named.empty() ? "" : ", ") + folder.name;
      return Fail(gpu + " may be any of these, and nothing was changed: " + named +
                  "; name one, or none for all");
    }
    if (!begin_so.empty()) {
      folders_ = std::move(begin_so);
      return true;
    }
    if (!others.empty()) return Fail("no GPU " + gpu + " is here; these are: " + others);
    if (!unseen.empty() || !HasNoGpu(places)) return Fail(NoSchedulerFound(places, unseen));
    if (!command_.gpu.empty()) return Fail("no GPU " + gpu + " is here; " + kNoGpu);
    Note(kNoGpu);
    if (command_.format != Format::kTable) SayAsDocument();
    return false;
  }

  // A failure is reported, and the other GPUs are drained all the same.
  bool Order(const Folder& folder) {
    const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    std::string error;
    const bool done = command_.undo ? RemoveDrainOrder(folder.path, &error)
                                    : WriteDrainOrder(folder.path, {now, command_.reason}, &error);
    return done || Fail(error);
  }

  // Who is still there.
  void Look() {
    const AllFigures all = AskSchedulers(command_.state_dir);
    holders_.clear();
    for (const Folder& folder : folders_) holders_.push_back(HoldersOf(folder, all));
    troubles_ = all.none_found ? std::vector<std::string>() : all.troubles;
  }

  size_t Tenants() const {
    size_t tenants = 0;
    for (const Holders& holders : holders_) tenants += holders.known.size();
    return tenants;
  }

  // Why not everybody is known; empty: everybody is.
  std::string Unknown() const {
    for (size_t i = 0; i < folders_.size(); ++i) {
      if (holders_[i].unknown.empty()) continue;
      return "who holds slots of " + folders_[i].name + " is not known: " + holders_[i].unknown;
    }
    return {};
  }

  std::set<std::string> Notes() const {
    std::set<std::string> notes;
    for (const Holders& holders : holders_)
      notes.insert(holders.notes.begin(), holders.notes.end());
    return notes;
  }

  // One line.
  std::string WaitsFor() const {
    std::vector<std::string> names;
    std::set<std::string> said;
    for (const Holders& holders : holders_) {
      for (const Holder& holder : holders.known) {
        if (said.insert(holder.name()).second) names.push_back(holder.name());
      }
    }
    std::string line = names.empty() ? "" : "waits for pods that hold slots: " + SomeOf(names);
    for (const std::string& note : Notes()) line += (line.empty() ? "waits: " : "; ") + note;
    if (const std::string unknown = Unknown(); !unknown.empty()) {
      line += (line.empty() ? "waits: " : "; ") + unknown;
    }
    return line;
  }

  // Until everybody is gone and that is known. The line that says who is waited for is printed when it changes.
  void Wait() {
    const auto begin = SteadyTime::now();
    std::string said;
    // Since then it is not known whether anybody is there.
    auto last_known = begin;
    while (Tenants() != 0 || !Unknown().empty()) {
      const std::string line = WaitsFor();
      if (line != said) on_line_(line);
      said = line;
      const auto now = SteadyTime::now();
      if (Tenants() != 0) last_known = now;
      if ((command_.timeout && now - begin >= *command_.timeout) ||
          now - last_known >= kBecomesKnown) {
        answer_.exit_status = kPartly;
        return;
      }
      std::this_thread::sleep_for(kPollInterval);
      Look();
    }
  }

  // An order that failed stays the worst that can be said; what is not known comes before what is only noted.
  void SayTroubles() {
    for (const std::string& trouble : troubles_) Note(trouble);
    for (const std::string& note : Notes()) Note(note);
    const std::string unknown = Unknown();
    if (!unknown.empty()) Note(unknown);
    const bool is_whole = unknown.empty() && (command_.wait || troubles_.empty());
    if (!is_whole && answer_.exit_status == kGood) answer_.exit_status = kNotGood;
  }

  // Reads the folders again, to report the GPUs' actual state, whichever command has ordered it.
  void Say() {
    for (const Folder& folder : folders_) {
      const std::string why = DrainReason(folder.path);
      answer_.text += folder.name + (why.empty() ? " is open to everybody\n" : " is " + why + "\n");
    }
    if (command_.undo) return;
    if (Tenants() == 0) {
      if (Unknown().empty()) answer_.text += "nobody is there any more\n";
      return;
    }
    std::vector<std::vector<std::string>> rows = {
        {"NAMESPACE", "POD", "CONTAINER", "GPU", "SLOTS", "PROCESSES", "STATE"}};
    for (size_t i = 0; i < folders_.size(); ++i) {
      for (const Holder& holder : holders_[i].known) {
        rows.push_back({OrNotSaid(holder.pod_namespace), OrNotSaid(holder.pod),
                        OrNotSaid(holder.container), folders_[i].name, std::to_string(holder.slots),
                        holder.processes ? std::to_string(*holder.processes) : kNotSaid,
                        holder.state});
      }
    }
    std::sort(rows.begin() + 1, rows.end());
    answer_.text += FormatTable(rows);
    Note(std::to_string(Tenants()) + (Tenants() == 1 ? " tenant is" : " tenants are") +
         " still there, and nothing is taken from them: delete their pods, or wait with --wait");
  }

  static Json JsonOf(const Holders& holders) {
    // Some of them are not the list.
    if (!holders.unknown.empty()) return {};
    Json tenants = Json::array();
    for (const Holder& holder : holders.known) {
      const auto or_null = [](const std::string& text) {
        return text.empty() ? Json() : Json(text);
      };
      tenants.push_back({{"namespace", or_null(holder.pod_namespace)},
                         {"pod", or_null(holder.pod)},
                         {"container", or_null(holder.container)},
                         {"slots", holder.slots},
                         {"processes", holder.processes ? Json(*holder.processes) : Json()},
                         {"state", holder.state}});
    }
    return tenants;
  }

  void SayAsDocument() {
    Json document = {{"gpus", Json::array()}};
    for (size_t i = 0; i < folders_.size(); ++i) {
      const auto order = ReadDrainOrder(folders_[i].path);
      Json gpu = {{"gpu", folders_[i].name},
                  {"drained", order.has_value()},
                  {"reason", order ? order->reason : ""},
                  {"since", order ? Json(order->since_unix_s) : Json()},
                  {"tenants", command_.undo ? Json() : JsonOf(holders_[i])}};
      document["gpus"].push_back(std::move(gpu));
    }
    answer_.text += FormatDocument(document, command_.format);
  }

  const DrainCommand& command_;
  const OnLine& on_line_;
  Answer answer_;
  std::vector<Folder> folders_;
  std::vector<Holders> holders_;       // of each of them
  std::vector<std::string> troubles_;  // of schedulers that exist and do not answer
};

}  // namespace

Answer Drain(const DrainCommand& command, const OnLine& on_line) {
  return Drainage(command, on_line).Run();
}

}  // namespace gpuloom::run
