// SPDX-License-Identifier: Apache-2.0
// A question about a policy file and its answer. Reads that file and nothing else; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuloom {

struct PolicyCommand {
  enum class Kind { kCheck, kExplain, kSimulate };
  Kind kind = Kind::kCheck;
  std::string file;
  // kCheck: GPUs against which its promises are judged.
  std::vector<uint64_t> gpu_bytes;
  int slots = 10;  // as the node agent's default
  std::string reserve = "auto";
  // Into which its multiprocessors are divided: how many, and in groups of how many.
  uint32_t multiprocessors = 132;
  uint32_t multiprocessors_in_group = 8;
  // kExplain
  std::string pod_namespace;
  std::string pod;  // POD or POD/CONTAINER; empty: the namespace only
  // kSimulate
  std::vector<std::string> tenants;    // as gpuloom-simulate's --tenant
  std::vector<std::string> simulator;  // its other arguments
};

struct PolicyAnswer {
  std::string text;
  std::string trouble;
  int exit_status = 0;  // 1: the policy is wrong; 2: the question is, or the file cannot be read
};

PolicyAnswer AnswerAboutPolicy(const PolicyCommand& command);

}  // namespace gpuloom
