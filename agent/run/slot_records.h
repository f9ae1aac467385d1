// SPDX-License-Identifier: Apache-2.0
// Who holds slots of an agent's GPUs: the records that it keeps in its state folder (agent/identity/allocation_record.h). They
// say so also while a scheduler is gone, or has just started again and knows nobody until the agent tells it. Reads files; safe
// from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuloom::run {

// One container that was given slots. Names are cut to one line.
struct SlotRecord {
  std::string allocation;  // its name, by which the scheduler knows it
  std::string gpu;         // the UUID
  std::string folder;      // that GPU's, in the state folder
  uint32_t slots = 0;
  std::vector<std::string> libraries;  // what it has mounted: file names

  // Of one that has started; before, whose it is is not written down.
  bool is_bound = false;
  std::string pod_namespace, pod, container;
  std::string trust_domain;
  uint64_t quota_bytes = 0;
  int64_t since_unix_s = 0;  // wall time
};

struct SlotRecords {
  std::vector<SlotRecord> records;    // by pod and container
  std::vector<std::string> troubles;  // each a record that cannot be read, or that they all cannot
};

// Nothing where no agent has ever given slots.
SlotRecords ReadSlotRecords(const std::string& state_dir);
// Of one allocation. nullopt: there is no such record, or it cannot be read.
std::optional<SlotRecord> ReadSlotRecord(const std::string& state_dir,
                                         const std::string& allocation);

}  // namespace gpuloom::run
