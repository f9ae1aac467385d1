// SPDX-License-Identifier: Apache-2.0
// Finds all allocations of the pod on all schedulers first, and sends the order only when every
// scheduler has answered. A suspension stays in force; that the command waits until the work has
// stopped is a convenience, and ending that wait undoes nothing.
#include "agent/run/suspend.h"

#include <algorithm>
#include <set>
#include <thread>

#include "agent/node/one_line.h"
#include "agent/run/scheduler_figures.h"
#include "agent/run/scheduler_search.h"
#include "proto/control/client.h"

namespace gpuloom::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{20};
// How many names an error lists.
constexpr size_t kNamed = 20;

std::string NameOf(const control::AllocationState& state) {
  return Text(state.pod_namespace) + "/" + Text(state.pod) + "/" + Text(state.container);
}

std::string NameOf(const SuspendCommand& command) {
  const std::string name = command.pod_namespace + "/" + command.pod;
  return OneLine(command.container.empty() ? name : name + "/" + command.container,
                 kLongestNameBytes);
}

// Compares the fields as they came, not as they are shown: OneLine may make two names alike. An
// allocation that is not bound has no pod yet.
bool IsMeant(const SuspendCommand& command, const control::AllocationState& state) {
  const auto is = [](const auto& field, const std::string& text) {
    return std::string_view(field, control::TextLength(field)) == text;
  };
  return state.bound != 0 && is(state.pod_namespace, command.pod_namespace) &&
         is(state.pod, command.pod) &&
         (command.container.empty() || is(state.container, command.container));
}

// One scheduler, and the allocations there that are meant.
struct Asked {
  std::string folder;
  control::Client client;
  std::set<std::string> names;
};

class Suspension {
 public:
  explicit Suspension(const SuspendCommand& command) : command_(command) {}

  Answer Run() {
    if (!FindAllocations()) return std::move(outcome_);
    if (Say() && command_.suspend) WaitUntilHeld();
    if (command_.format != Format::kTable) SayAsDocument();
    return std::move(outcome_);
  }

 private:
  bool Fail(const std::string& trouble) {
    outcome_.exit_status = kNotGood;
    outcome_.trouble += "gpuloom: " + trouble + "\n";
    return false;
  }

  // For people; a document has it as fields.
  void PrintLine(const std::string& line) {
    if (command_.format == Format::kTable) outcome_.text += line + "\n";
  }

  bool FindAllocations() {
    const std::vector<std::string> places = SearchedFolders(command_.state_dir);
    // For the message, should the pod not be here: its name may be misspelled.
    std::set<std::string> others;
    std::vector<std::string> missing;
    bool all_answer = true;
    for (const std::string& folder : FindSchedulers(places, &unseen_)) {
      Asked asked{folder, {}, {}};
      std::string error;
      std::vector<control::AllocationState> states;
      if (!asked.client.Connect(folder, control::Client::kDefaultTimeout, &error)) {
        // It has no tenants that could be suspended.
        if (asked.client.not_listening() && LacksScheduler(folder)) {
          missing.push_back(NoSchedulerRuns(folder));
        } else if (asked.client.not_listening()) {
          unseen_ += "; " + error;
        } else {
          all_answer = Fail(error);
        }
        continue;
      }
      if (!asked.client.ListAllocations(&states, &error)) {
        all_answer = Fail(error);
        continue;
      }
      ++schedulers_;
      for (const control::AllocationState& state : states) {
        if (IsMeant(command_, state)) {
          asked.names.insert(control::TextOf(state.name));
        } else if (state.bound != 0) {
          others.insert(NameOf(state));
        }
      }
      if (asked.names.empty()) continue;
      // Only where the pod is: an older scheduler without it is in nobody's way.
      if (!asked.client.scheduler_speaks_3_2()) {
        all_answer = Fail("the scheduler in " + folder +
                          " is of an older release, which cannot suspend: drain the node's GPU "
                          "pods and delete its gpuloom-schedulers pod; without Kubernetes, end "
                          "the commands that use it");
        continue;
      }
      asked_.push_back(std::move(asked));
    }
    // All or none: half a pod that stands still is no use to anybody.
    if (!all_answer) return Fail("nothing was changed");
    if (!asked_.empty()) return true;
    for (const std::string& trouble : missing) (void)Fail(trouble);
    if (schedulers_ == 0) {
      return missing.empty() ? Fail(NoSchedulerFound(places, unseen_)) : false;
    }
    std::string there;
    size_t named = 0;
    for (const std::string& other : others) {
      if (named++ == kNamed) break;
      there += (there.empty() ? "" : ", ") + other;
    }
    if (others.size() > kNamed) there += ", …";
    return Fail(NameOf(command_) + " has no GPU on this node; " +
                (there.empty() ? "nobody has" : "these have: " + there) + unseen_);
  }

  // Goes on after a failure: what can be suspended is, and the message says what to repeat.
  bool Say() {
    bool said = true;
    for (Asked& asked : asked_) {
      for (const std::string& name : asked.names) {
        std::string error;
        if (!asked.client.SuspendAllocation(name, command_.suspend, &error)) {
          said = Fail(error + "; in " + asked.folder + " " + NameOf(command_) +
                      " may still be as it was: repeat the command");
        }
      }
    }
    if (said && !command_.suspend) PrintLine(NameOf(command_) + " goes on");
    return said;
  }

  // Asks again and again: schedulers send nothing by themselves.
  void WaitUntilHeld() {
    const Clock::time_point deadline = Clock::now() + command_.timeout;
    for (;;) {
      std::string waits;
      for (Asked& asked : asked_) {
        if (!Look(&asked, &waits)) return;
      }
      if (waits.empty()) {
        PrintLine(NameOf(command_) + " is suspended: nothing of it is at a GPU");
        return;
      }
      if (Clock::now() >= deadline) {
        outcome_.exit_status = kPartly;
        outcome_.trouble += "gpuloom: " + NameOf(command_) + " is suspended, but " + waits +
                            ". A kernel that runs cannot be interrupted; nothing more of it will "
                            "start until gpuloom resume\n";
        return;
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  // Adds to `waits` what still runs.
  bool Look(Asked* asked, std::string* waits) {
    std::string error;
    std::vector<control::AllocationState> states;
    if (!asked->client.ListAllocations(&states, &error)) return Fail(error);
    for (const control::AllocationState& state : states) {
      if (!asked->names.contains(control::TextOf(state.name))) continue;
      // Otherwise this would wait for a suspension that has been withdrawn.
      if (state.suspended == 0) {
        return Fail(NameOf(state) + " has been resumed by another command meanwhile");
      }
      // All of its processes are held, or it has none.
      if (state.held_sessions >= state.sessions) continue;
      *waits += (waits->empty() ? "" : ", ") +
                std::to_string(state.sessions - state.held_sessions) + " of " +
                std::to_string(state.sessions) + " processes of " + NameOf(state) +
                " still have work at the GPU of " + asked->folder;
    }
    return true;
  }

  // Asks once more, so that the document says how it ended.
  void SayAsDocument() {
    Json document = {{"tenants", Json::array()}};
    for (Asked& asked : asked_) {
      std::string error;
      std::vector<control::AllocationState> states;
      if (!asked.client.ListAllocations(&states, &error)) {
        Fail(error);
        continue;
      }
      for (const control::AllocationState& state : states) {
        if (!asked.names.contains(control::TextOf(state.name))) continue;
        document["tenants"].push_back({{"namespace", Text(state.pod_namespace)},
                                       {"pod", Text(state.pod)},
                                       {"container", Text(state.container)},
                                       {"state_dir", OneLine(asked.folder, kLongestNameBytes)},
                                       {"state", StateOf(state)},
                                       {"processes", state.sessions},
                                       {"processes_held", state.held_sessions}});
      }
    }
    outcome_.text += FormatDocument(document, command_.format);
  }

  const SuspendCommand& command_;
  Answer outcome_;
  std::vector<Asked> asked_;
  size_t schedulers_ = 0;
  std::string unseen_;  // where there may be further schedulers, each after "; "
};

}  // namespace

bool ParseTarget(const std::string& text, SuspendCommand* command) {
  const size_t first = text.find('/');
  if (first == text.npos) return false;
  const size_t second = text.find('/', first + 1);
  command->pod_namespace = text.substr(0, first);
  command->pod = text.substr(first + 1, second == text.npos ? second : second - first - 1);
  command->container = second == text.npos ? "" : text.substr(second + 1);
  return !command->pod_namespace.empty() && !command->pod.empty() &&
         (second == text.npos || !command->container.empty()) &&
         command->container.find('/') == command->container.npos;
}

Answer Suspend(const SuspendCommand& command) { return Suspension(command).Run(); }

}  // namespace gpuloom::run
