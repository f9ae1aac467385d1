// SPDX-License-Identifier: Apache-2.0
// Where each version comes from: this program knows its own, an agent writes its version into its lock, schedulers
// report theirs and their executors', libraries have theirs in their file names, and NVIDIA's kernel module shows its
// in /proc.
#include "agent/run/versions.h"

#include <map>
#include <string_view>
#include <vector>

#include "agent/node/agent_lock.h"
#include "agent/node/lock_file.h"
#include "agent/node/one_line.h"
#include "agent/run/doctor/look.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/slot_records.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

constexpr char kOlder[] = "an older release, which does not say";

// The beginnings of the names of files that containers have mounted (agent/plugin/shim_store.h); longer ones first.
constexpr const char* kLibraries[] = {"libgpuloom-nvml", "libgpuloom", "gpuloom-trace"};

// One that has had the lock of a state folder.
struct Agent {
  std::string state_dir;
  std::string version;  // empty: it does not say
  bool is_in_charge = false;
};

// A file that containers are given, and how many of them have it.
struct Library {
  std::string name;     // "libgpuloom"
  std::string version;  // "0.2.0"
  uint64_t containers = 0;
};

// The lock file stays when its agent ends, and with it what that one was.
std::vector<Agent> AgentsOf(const std::string& state_dir) {
  std::vector<Agent> agents;
  for (const std::string& place : SearchedFolders(state_dir)) {
    const std::string lock = place + "/" + kAgentLockName;
    if (!Exists(lock)) continue;
    agents.push_back({OneLine(place, kLongestNameBytes),
                      OneLine(LineOfHolder(lock), kLongestNameBytes), IsLocked(lock)});
  }
  return agents;
}

// "0.2.0" of libgpuloom-0.2.0-0123456789abcdef.so.
bool ParseLibrary(std::string_view file, Library* library) {
  for (const std::string_view name : kLibraries) {
    // "libgpuloom" is also how libgpuloom-nvml begins, which is why that stands before it.
    if (!file.starts_with(name) || file.substr(name.size()).substr(0, 1) != "-") continue;
    file.remove_prefix(name.size() + 1);
    library->name = name;
    // Behind the last hyphen is the file's hash.
    library->version = OneLine(file.substr(0, file.rfind('-')), kLongestNameBytes);
    return true;
  }
  return false;
}

// By file name: those that there are, and those that containers were given.
std::map<std::string, Library> LibrariesOf(const std::string& state_dir) {
  std::map<std::string, Library> libraries;
  for (const std::string& place : SearchedFolders(state_dir)) {
    for (const std::string& name : NamesIn(place + "/shim")) {
      Library library;
      if (ParseLibrary(name, &library)) libraries.try_emplace(name, library);
    }
    for (const SlotRecord& record : ReadSlotRecords(place).records) {
      for (const std::string& name : record.libraries) {
        Library library;
        if (!ParseLibrary(name, &library)) continue;
        ++libraries.try_emplace(name, library).first->second.containers;
      }
    }
  }
  return libraries;
}

// "13.0" of 13000; empty: not known.
std::string CudaText(uint32_t version) {
  if (version == 0) return {};
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json JsonOf(const SchedulerFigures& scheduler) {
  Json json = {{"gpu", scheduler.name()}};
  if (!scheduler.speaks_3_3) return json;
  json["version"] = Text(scheduler.gpu.version);
  json["device"] = Text(scheduler.gpu.name);
  json["cuda"] = OrNull(CudaText(scheduler.driver_version));
  json["executors"] = Json::array();
  for (const control::DomainState& domain : scheduler.domains) {
    // A domain stays known after its last executor has ended; that one is not listed.
    if (domain.executors == 0) continue;
    const std::string cupti = Text(domain.executor_cupti);
    const bool has_cupti = domain.executor_has_cupti != 0;
    json["executors"].push_back({{"trust_domain", Text(domain.name)},
                                 {"version", OrNull(Text(domain.executor_version))},
                                 {"cupti", OrNull(has_cupti ? cupti : "")},
                                 {"cupti_reason", OrNull(has_cupti ? "" : cupti)}});
  }
  return json;
}

std::string LinesOf(const SchedulerFigures& scheduler) {
  const std::string gpu = scheduler.name();
  if (!scheduler.speaks_3_3) {
    return "scheduler of " + gpu + ": an older release, before control 3.3\n";
  }
  std::string text = "scheduler of " + gpu + ": " + Text(scheduler.gpu.version) + "\n";
  text += "driver of " + gpu + ": ";
  const std::string cuda = CudaText(scheduler.driver_version);
  text += (cuda.empty() ? "" : "CUDA " + cuda + ", ") + Text(scheduler.gpu.name) + "\n";
  // A line for each version, with the domains whose executors are of it: normally one.
  const auto add = [&text, &gpu](const char* what, const std::string& which,
                                 const std::string& domains) {
    text.append(what).append(" of ").append(gpu).append(": ").append(which).append(", of ");
    text.append(domains).append("\n");
  };
  for (const auto& [version, domains] : ExecutorVersions(scheduler)) {
    add("executors", version, SomeOf(domains));
  }
  for (const auto& [cupti, domains] : ExecutorCuptis(scheduler)) {
    add("CUPTI", cupti, SomeOf(domains));
  }
  return text;
}

// The release of the next executor, which may differ from those that run.
std::string LinesOf(const ExecutorProgram& executor) {
  std::string text =
      "installed executor: " + (executor.version.empty() ? executor.trouble : executor.version) +
      "\n";
  if (!executor.cupti.empty()) text += "installed CUPTI: " + executor.cupti + "\n";
  if (!executor.why_no_cupti.empty())
    text += "installed CUPTI: none; " + executor.why_no_cupti + "\n";
  return text;
}

std::string LineOf(const Agent& agent) {
  const std::string version = agent.version.empty() ? kOlder : agent.version;
  return "agent: " +
         (agent.is_in_charge ? version : "none is in charge; the last one was " + version) + "\n";
}

std::string LineOf(const std::string& file, const Library& library) {
  return library.name + " of " + std::to_string(library.containers) +
         (library.containers == 1 ? " container: " : " containers: ") + library.version + ", " +
         OneLine(file, kLongestNameBytes) + "\n";
}

}  // namespace

std::string FormatVersions(const std::string& state_dir,
                           const std::vector<SchedulerFigures>& schedulers,
                           const ExecutorProgram& executor, Format format) {
  const std::vector<Agent> agents = AgentsOf(state_dir);
  const std::map<std::string, Library> libraries = LibrariesOf(state_dir);
  const std::string driver = NvidiaDriver("");
  if (format == Format::kTable) {
    std::string text = VersionLine("gpuloom") + "\n";
    for (const Agent& agent : agents) text += LineOf(agent);
    for (const SchedulerFigures& scheduler : schedulers) text += LinesOf(scheduler);
    text += LinesOf(executor);
    for (const auto& [file, library] : libraries) text += LineOf(file, library);
    if (!driver.empty())
      text += "NVIDIA's kernel module: " + OneLine(driver, kLongestNameBytes) + "\n";
    return text;
  }
  Json json = {{"version", kVersion},
               {"wire", control::VersionText(wire::kWireMajor, wire::kWireMinor)},
               {"control", control::VersionText(control::kControlMajor, control::kControlMinor)},
               {"agents", Json::array()},
               {"schedulers", Json::array()},
               {"executor",
                {{"version", OrNull(executor.version)},
                 {"trouble", OrNull(executor.trouble)},
                 {"cupti", OrNull(executor.cupti)},
                 {"cupti_reason", OrNull(executor.why_no_cupti)}}},
               {"libraries", Json::array()},
               {"nvidia_kernel_module", OrNull(OneLine(driver, kLongestNameBytes))}};
  for (const Agent& agent : agents) {
    json["agents"].push_back({{"state_dir", agent.state_dir},
                              {"version", OrNull(agent.version)},
                              {"in_charge", agent.is_in_charge}});
  }
  for (const SchedulerFigures& scheduler : schedulers) {
    json["schedulers"].push_back(JsonOf(scheduler));
  }
  for (const auto& [file, library] : libraries) {
    json["libraries"].push_back({{"name", library.name},
                                 {"version", library.version},
                                 {"file", OneLine(file, kLongestNameBytes)},
                                 {"containers", library.containers}});
  }
  return FormatDocument(json, format);
}

}  // namespace gpuloom::run
