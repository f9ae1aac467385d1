// SPDX-License-Identifier: Apache-2.0
// `gpuloom doctor`: checks whether a node has everything that gpuloom needs, and says what to do about the rest. Reads
// files, connects to sockets, and changes nothing. One thread; waits for the schedulers' answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/answer/answer.h"
#include "agent/answer/output.h"

namespace gpuloom::run {

struct FileSystem {
  bool forbids_exec = false;
  uint64_t free_bytes = 0;
  uint64_t free_files = 0;  // UINT64_MAX: as many as there is room for
};

struct DoctorCommand {
  std::string
      root;  // before every path: another file system, such as a node's below /host; empty: this one
  std::string
      state_dir;  // of the agent; empty: its default, and those of this user's `gpuloom run`
  std::string kubelet_dir = "/var/lib/kubelet";
  std::string policy_file = "/etc/gpuloom/policy.yaml";
  std::string program;  // this program's path, to find the files beside it
  Format format = Format::kTable;

  // Seams for tests, which have a folder instead of a machine.
  std::optional<FileSystem> (*file_system)(const std::string& path) = nullptr;
  int (*landlock_version)() = nullptr;  // 0: this kernel has none
  uint64_t (*page_bytes)() = nullptr;
};

enum class Verdict { kOk, kWarning, kError };

struct Finding {
  std::string check;  // "kernel"
  Verdict verdict = Verdict::kOk;
  std::string found;
  std::string remedy;  // the next step; empty: none
};

// One function for each part of a node, called in this order.
using Findings = std::vector<Finding>;
Findings CheckKernel(const DoctorCommand& command);
Findings CheckGpus(const DoctorCommand& command);
Findings CheckContainerRuntime(const DoctorCommand& command);
Findings CheckKubelet(const DoctorCommand& command);
Findings CheckPolicy(const DoctorCommand& command);
Findings CheckState(const DoctorCommand& command);
Findings CheckSchedulers(const DoctorCommand& command);

// kNotGood: at least one finding is an error.
Answer Doctor(DoctorCommand command);

}  // namespace gpuloom::run
