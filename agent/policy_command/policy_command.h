// SPDX-License-Identifier: Apache-2.0
// A question about a policy file and its answer. Reads the files that it names and nothing else; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom {

struct PolicyCommand {
  enum class Kind { kCheck, kDiff, kExplain, kShow, kSimulate };
  Kind kind = Kind::kCheck;
  std::string file;  // "-" is standard input, except for kShow
  Format format = Format::kTable;
  // kCheck: GPUs against which the policy's promises are judged. To a GPU without a product, rules for particular GPUs
  // apply, too.
  struct CheckedGpu {
    std::string product;
    uint64_t memory_bytes = 0;
    bool operator==(const CheckedGpu&) const = default;
  };
  std::vector<CheckedGpu> gpus;
  int slots = 10;  // as the node agent's default
  std::string reserve = "auto";
  // The GPU's multiprocessors, and how many of them make up a group, the unit in which they are divided.
  uint32_t multiprocessors = 132;
  uint32_t multiprocessors_in_group = 8;
  // kExplain
  std::string pod_namespace;
  std::string pod;  // POD or POD/CONTAINER; empty: the namespace only
  // kDiff, kShow: where the agent keeps what is in force.
  std::string state_dir;
  // kSimulate
  std::vector<std::string> tenants;    // as gpuloom-simulate's --tenant
  std::vector<std::string> simulator;  // its other arguments
  std::string tenants_file;            // a tenant on each line; empty: none
  std::string trace_file;              // agent/simulator/trace_rows.h; empty: none
  uint32_t simulated_gpus = 1;
};

// The path from which the file is read.
std::string PathOf(const PolicyCommand& command);

// kNotGood, of kCheck and kShow: the policy is not as it should be. kMistake: the question is not, the file cannot be read or, to
// answer the others, is no policy. Not of kDiff (change.h).
Answer AnswerAboutPolicy(const PolicyCommand& command);

}  // namespace gpuloom
