// SPDX-License-Identifier: Apache-2.0
// Drops this process's privileges before it serves any tenant, because tenants' kernels run in its address space and a
// hole in the driver is a hole in this process. It gives up the user it was started as, capabilities, files, other
// processes, the network, and every system call that CUDA was not seen to need. What a machine or user cannot provide
// is skipped and logged; docs/design/taken-over-executor.md describes what remains open then, and how the list of
// system calls was found.
//
//   Load(…);                                         // the library may lie where only root can read
//   Confine(wishes, &confinement, &error);           // before cuInit, by the only thread
//   LogMechanisms(confinement);
//
// Sanitizer builds restrict neither files nor system calls: their run-time libraries trace the
// process itself.
#pragma once

#include <string>
#include <vector>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

struct ConfinementWishes {
  // uid and gid of this process alone; 0: keeps the current user.
  unsigned user = 0;
  // Folder to create: all it may write to except the GPU's device nodes. Empty: none.
  std::string folder;
  // A function of the driver's library, from whose folder the driver loads more libraries on
  // demand.
  const void* driver = nullptr;
  // The caller receives Confinement::refused_calls and answers there.
  bool tells_refused_calls = false;
  // For a driver that does not start under the file rules and the allowed list of system calls: no
  // file rules, and only system calls that no driver needs are refused.
  bool lenient = false;
};

struct Confinement {
  struct Mechanism {
    const char* name;
    bool is_had;
    std::string detail;  // what was applied; or why it was not, and the consequence
  };
  std::vector<Mechanism> mechanisms;
  bool has_folder = false;
  // The kernel reports refused system calls through this; invalid if it cannot. Whoever holds it can allow such a call,
  // so pass it on and close it before anything else.
  channel::UniqueFd refused_calls;
  // Keeps this process's /proc entries for itself and its threads open, because the file rules refer to them.
  channel::UniqueFd threads;
};

// Returns false with a message if something was refused that every machine has: the requested user, dropping all
// capabilities, the filter. The process must then end.
[[nodiscard]] bool Confine(const ConfinementWishes& wishes, Confinement* confinement,
                           std::string* error);

// Logs one line for all that was applied, and one for each mechanism that was not.
void LogMechanisms(const Confinement& confinement);

}  // namespace gpuloom::executor
