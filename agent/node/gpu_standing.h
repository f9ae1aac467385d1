// SPDX-License-Identifier: Apache-2.0
// A GPU's standing (docs/glossary.md) and an operator's order to drain it: two files in the GPU's folder of the state
// directory, beside its scheduler's socket, so that they survive agent and scheduler.
//
//   drained.json    written by `gpuloom drain`, removed by `gpuloom drain --undo`; the agent and `gpuloom run` obey it
//   standing.json   written by the agent whenever it changes, read by `gpuloom gpus` and `gpuloom doctor`
//
// Only root and the owner of the folder can write them. Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuloom {

// Why new pods do not get a drained GPU: for the kubelet's log, a pod's events and the node's page.
inline constexpr char kDrainedByOperator[] = "drained by operator";

struct DrainOrder {
  int64_t since_unix_s = 0;
  std::string reason;  // the operator's own words; may be empty
};

// A GPU's folder in an agent's state directory.
std::string FolderOfGpu(const std::string& state_directory, const std::string& gpu_uuid);

// nullopt: the GPU is not drained. A file that exists but cannot be read counts as an order.
std::optional<DrainOrder> ReadDrainOrder(const std::string& folder);
// Returns false with a message in *error on failure. Ordering again changes only the reason.
[[nodiscard]] bool WriteDrainOrder(const std::string& folder, const DrainOrder& order,
                                   std::string* error);
// Succeeds also if there is no order.
[[nodiscard]] bool RemoveDrainOrder(const std::string& folder, std::string* error);

// "drained by operator: new fans"; empty: the GPU is not drained.
std::string DrainReason(const std::string& folder);

enum class GpuState : uint32_t {
  kHealthy,
  kDrained,
  kSick,         // the GPU or its driver: it is probed and heals by itself
  kUnavailable,  // no scheduler, no policy, or no memory for slots
};
inline constexpr const char* kGpuStateNames[] = {"healthy", "drained", "sick", "unavailable"};

struct GpuStanding {
  GpuState state = GpuState::kUnavailable;
  std::string reason;        // one line; empty when healthy
  int64_t since_unix_s = 0;  // since when the GPU is in this state
  uint64_t slots = 0;
  uint64_t held = 0;             // slots that containers hold
  uint64_t beyond = 0;           // those of them beyond the present number of slots
  uint64_t withheld = 0;         // free slots for which no memory is left
  uint64_t promised_bytes = 0;   // memory promised to the holders
  uint64_t available_bytes = 0;  // memory that can be promised at all
  int64_t index = -1;            // the GPU's number; -1: not known
  // Rules of the policy that the GPU cannot keep: how many, and why, for the first kMaxImpossibleRules.
  uint64_t impossible_rules = 0;
  std::vector<std::string> impossible;
  // What else is known of it, for an agent that starts while the GPU cannot be asked.
  std::string name = {};
  uint64_t memory_bytes = 0;
  int64_t numa_node = -1;
  // Why it is sick, whatever the state: one that is drained may be. The next agent begins with it.
  std::string sickness = {};
  // Whose word that is (Sickness::NameOf); empty in an older agent's file.
  std::string sickness_source = {};
  bool operator==(const GpuStanding&) const = default;
};

// Keeps the file small, whatever the policy.
inline constexpr size_t kMaxImpossibleRules = 16;

std::string FormatStanding(const GpuStanding& standing);
// nullopt: there is no file that this program understands. `unread`, if given: why one that lies there cannot be read now,
// as where a disk fails or the process has no file descriptors left. It may be whole; empty: that is not so.
std::optional<GpuStanding> ReadStanding(const std::string& folder, std::string* unread = nullptr);
std::string StandingPath(const std::string& folder);

}  // namespace gpuloom
