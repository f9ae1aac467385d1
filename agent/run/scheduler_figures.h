// SPDX-License-Identifier: Apache-2.0
// What this machine's schedulers report about their GPUs and tenants, asked over their control sockets. Changes
// nothing. One thread; waits for answers, at most five seconds for each.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/node/gpu_standing.h"
#include "agent/node/one_line.h"
#include "agent/run/slot_records.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::run {

// A name as it is shown: escaped, because a tenant chooses its own.
template <size_t N>
std::string Text(const char (&field)[N]) {
  return OneLine({field, control::TextLength(field)}, kLongestNameBytes);
}

struct SchedulerFigures {
  std::string folder;
  bool speaks_3_3 = false;  // `gpu` and `domains` are known
  bool speaks_3_4 = false;
  bool speaks_3_8 = false;
  uint64_t memory_bytes = 0;
  uint32_t driver_version = 0;  // CUDA's number, 12020 for 12.2; 0: an older scheduler
  control::GpuState gpu{};
  std::vector<control::DomainState> domains;
  std::vector<control::AllocationState> allocations;  // those that are bound
  // The GPU's standing as the agent reports it; on a machine without an agent, whether the GPU is drained.
  std::optional<GpuStanding> standing;
  bool standing_is_current = true;  // false: the last agent has said so, and none is in charge now
  bool answers = true;              // false: nothing but folder and standing is known

  // The GPU's UUID; for a scheduler of an older release the folder, which the agent names after the GPU.
  std::string name() const;
};

// A tenant on one GPU, as its scheduler reports it; what the pointers lead to must outlive it.
struct Tenant {
  const SchedulerFigures* scheduler;
  const control::AllocationState* state;
};

// All tenants, sorted by namespace, pod, container and GPU.
std::vector<Tenant> TenantsOf(const std::vector<SchedulerFigures>& schedulers);
// Since when it has its slots: Unix time in seconds; 0: unknown.
int64_t SinceOf(const Tenant& tenant);
// What is known about it, in the form that all documents share.
Json JsonOfTenant(const Tenant& tenant);
Json JsonOfBusyTime(const control::BusyTime& busy);
inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// What running executors report about themselves, and the trust domains of those that report the same. Older executors
// report nothing.
using ByWord = std::map<std::string, std::vector<std::string>>;
ByWord ExecutorVersions(const SchedulerFigures& scheduler);
ByWord ExecutorCuptis(const SchedulerFigures& scheduler);  // or "none; " and why
// The trust domains whose executors are not fully confined.
std::vector<std::string> LenientDomains(const SchedulerFigures& scheduler);
// "a, b and 7 more"
std::string SomeOf(const std::vector<std::string>& names);

struct AllFigures {
  std::vector<SchedulerFigures> schedulers;  // by folder
  // Which schedulers did not answer and why, or that there is none and where it was looked for; one line each, without
  // newlines. A socket that a scheduler has left behind does not count as one.
  std::vector<std::string> troubles;
  std::vector<std::string> missing;      // folders of an agent's GPUs for which no scheduler runs
  std::vector<SchedulerFigures> silent;  // these, and those that did not answer
  bool none_found = false;               // and that alone is the trouble
  bool has_no_gpu = false;               // an agent has looked, and this node has none: no trouble

  // Who holds slots of an agent's GPUs, as it has written it down, and why some of that cannot be read.
  std::vector<SlotRecord> records;
  std::vector<std::string> record_troubles;
  // Of them those that have started, and that no scheduler says it serves.
  std::vector<SlotRecord> unserved;
  std::vector<std::string>
      unserved_troubles;  // one for each GPU whose scheduler answers, and what to do

  // All that is wrong: of schedulers, records, and who is not served.
  std::vector<std::string> AllTroubles() const;
};

// `state_dir` as SearchedFolders has it.
AllFigures AskSchedulers(const std::string& state_dir);

// The state folder of the agent that has made this folder for a GPU.
std::string StateFolderOf(const std::string& folder);

// The state of a tenant that no scheduler serves.
inline constexpr char kNotServed[] = "not served";
// What is known of it, as every document says it.
Json JsonOfRecord(const SlotRecord& record);

// What is wrong with a tenant, or that it runs: a word or two.
std::string StateOf(const control::AllocationState& state);

// The names under which faults are shown, by control::Fault.
inline constexpr const char* kFaultNames[] = {"broke_protocol", "lost_device", "did_not_drain",
                                              "lost_executor", "long_kernel"};
static_assert(std::size(kFaultNames) == control::kFaults, "each fault has its name");

// The unsupported CUDA features that its programs asked for; at most as many names as the report has room for.
std::vector<std::string> UnsupportedOf(const control::AllocationState& state);

}  // namespace gpuloom::run
