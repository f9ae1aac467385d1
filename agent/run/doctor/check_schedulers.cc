// SPDX-License-Identifier: Apache-2.0
// The schedulers: whether there is one for each GPU that the agent knows, whether it answers, and what it has to say.
#include "agent/node/node_folders.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"
#include "agent/run/scheduler_figures.h"
#include "agent/run/scheduler_search.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

// How it stands with the agent, whether its scheduler answers or not.
void AddStanding(const SchedulerFigures& scheduler, Findings* findings) {
  // What an agent that is gone has said may be so no more, and that it is gone is said already.
  if (!scheduler.standing || !scheduler.standing_is_current ||
      scheduler.standing->state == gpuloom::GpuState::kHealthy) {
    return;
  }
  const bool is_drained = scheduler.standing->state == gpuloom::GpuState::kDrained;
  const bool is_sick = scheduler.standing->state == gpuloom::GpuState::kSick;
  findings->push_back(
      {"gpus", is_drained ? Verdict::kWarning : Verdict::kError,
       scheduler.name() + " is offered to nobody: " + scheduler.standing->reason,
       is_drained ? "gpuloom drain --undo opens it again"
       : is_sick  ? "the agent probes it and offers it again when that succeeds: dmesg for Xid "
                    "lines, " +
                       scheduler.folder + "/scheduler.log"
                 : "mend that; the agent's log, and " + scheduler.folder + "/scheduler.log"});
}

Findings OfOne(const SchedulerFigures& scheduler) {
  const std::string name = "scheduler of " + scheduler.name();
  // Nothing more is known of such a one.
  if (!scheduler.speaks_3_3) {
    return {{"schedulers", Verdict::kWarning, name + " is of an older release, before control 3.3",
             "it serves until it is replaced, which ends its tenants: docs/upgrading.md"}};
  }
  const std::string version = Text(scheduler.gpu.version);
  Findings findings;
  if (version == kVersion) {
    findings.push_back({"schedulers", Verdict::kOk, name + " answers", ""});
  } else {
    findings.push_back({"schedulers", Verdict::kWarning,
                        name + " is of another release, " + version + "; this is " + kVersion,
                        "it serves until it is replaced, which ends its tenants: "
                        "docs/upgrading.md"});
  }
  AddStanding(scheduler, &findings);
  for (const auto& [its, domains] : ExecutorVersions(scheduler)) {
    if (its == version) continue;
    findings.push_back({"executors", Verdict::kWarning,
                        "executors of " + scheduler.name() +
                            " are of another release than their scheduler, " + its + ": of " +
                            SomeOf(domains),
                        "they serve; where their programs may end, replace the scheduler: "
                        "docs/upgrading.md"});
  }
  for (const auto& [cupti, domains] : ExecutorCuptis(scheduler)) {
    findings.push_back(
        {"CUPTI", Verdict::kOk,
         "executors of " + scheduler.name() + ": " + cupti + ", of " + SomeOf(domains), ""});
  }
  const std::string log = scheduler.folder + "/scheduler.log";
  if (const std::vector<std::string> lenient = LenientDomains(scheduler); !lenient.empty()) {
    findings.push_back(
        {"executors", Verdict::kWarning,
         "executors of " + scheduler.name() +
             " are not fully confined, because the driver does not start in one that is: of " +
             SomeOf(lenient),
         log + " says what the driver said; what is open then: "
               "docs/design/taken-over-executor.md"});
  }
  // Counts since the scheduler began: a warning may be about what is long over.
  if (scheduler.gpu.executors_failed > 0) {
    findings.push_back({"executors", Verdict::kWarning,
                        std::to_string(scheduler.gpu.executors_failed) + " executors of " +
                            scheduler.name() + " did not start since its scheduler began",
                        log + " says why"});
  }
  if (scheduler.gpu.executors_lost > 0) {
    findings.push_back({"executors", Verdict::kWarning,
                        std::to_string(scheduler.gpu.executors_lost) + " executors of " +
                            scheduler.name() +
                            " ended under their tenants since its scheduler began",
                        "gpuloom tenants says whose fault it was, and " + log});
  }
  if (scheduler.gpu.memory_promised_bytes > scheduler.memory_bytes) {
    findings.push_back(
        {"memory", Verdict::kWarning, scheduler.name() + " is promised more memory than it has",
         "an allocation within its quota may fail: gpuloom gpus, and overcommit in the policy"});
  }
  return findings;
}

}  // namespace

Findings CheckSchedulers(const DoctorCommand& command) {
  std::string state_dir = command.state_dir;
  if (!command.root.empty())
    state_dir = command.root + (state_dir.empty() ? AgentsStateDir() : state_dir);
  // An agent's folders are looked at even where nothing in them answers: a missing scheduler does
  // not report itself.
  const std::string agents =
      command.root + (command.state_dir.empty() ? AgentsStateDir() : command.state_dir);
  Findings findings;
  // An agent makes a folder for each GPU that it has found.
  for (const std::string& gpu : NamesIn(agents + "/gpus")) {
    std::string folder = agents;
    folder.append("/gpus/").append(gpu);
    switch (ProbeSocket(folder, control::kControlSocketName)) {
      case SocketState::kListening:
        break;
      case SocketState::kClosed:
        findings.push_back({"schedulers", Verdict::kError,
                            "the scheduler of " + gpu + " is closed to this user", "run as root"});
        break;
      case SocketState::kMissing:
      case SocketState::kDead:
        findings.push_back({"schedulers", Verdict::kError, "no scheduler runs for " + gpu,
                            "the node's gpuloom-schedulers pod, and " + folder +
                                "/scheduler.log; if that GPU is gone, delete that folder"});
    }
  }
  const AllFigures all = AskSchedulers(state_dir);
  for (const SchedulerFigures& scheduler : all.schedulers) {
    for (Finding& finding : OfOne(scheduler)) findings.push_back(std::move(finding));
  }
  for (const SchedulerFigures& scheduler : all.silent) AddStanding(scheduler, &findings);
  for (const std::string& trouble : all.unserved_troubles) {
    findings.push_back({"schedulers", Verdict::kError, trouble, ""});
  }
  for (const std::string& trouble : all.record_troubles) {
    findings.push_back(
        {"state folder", Verdict::kError, trouble,
         "run as root; a record that is damaged the agent sets aside when it starts, "
         "and its pod must be started again"});
  }
  if (!all.none_found) {
    for (const std::string& trouble : all.troubles) {
      findings.push_back(
          {"schedulers", Verdict::kError, trouble,
           "the scheduler.log beside its socket; one that hangs is replaced with the node's "
           "gpuloom-schedulers pod, which ends its tenants"});
    }
  } else if (all.has_no_gpu) {
    findings.push_back({"schedulers", Verdict::kOk, kNoGpu, ""});
  } else if (findings.empty()) {
    const bool has_kubelet = Exists(command.root + command.kubelet_dir);
    findings.push_back({"schedulers", has_kubelet ? Verdict::kError : Verdict::kOk, "none runs",
                        has_kubelet ? "the node's gpuloom-schedulers pod and its log" : ""});
  }
  return findings;
}

}  // namespace gpuloom::run
