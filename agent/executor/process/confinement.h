// SPDX-License-Identifier: Apache-2.0
// What this process gives up before it knows any tenant, because tenants' kernels run in its
// address space and a hole in the driver is a hole in us: the user it was started as, capabilities,
// files, processes, the network, and every system call that CUDA was not seen to need. What a
// machine or a user cannot give is left out and said; docs/design/security-model.md says what stays
// open then, and how the list of system calls was found.
//
//   Load(…);                                         // the library may lie where only root reads
//   Confine(wishes, &confinement, &error);           // before cuInit, by the only thread
//   LogMechanisms(confinement);
//
// Sanitizer builds have neither the list of files nor that of system calls: their run-time
// libraries trace themselves.
#pragma once

#include <string>
#include <vector>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

struct ConfinementWishes {
  // uid and gid of this process's own; 0: it stays who it is.
  unsigned user = 0;
  // To be made, and all it may write to but the GPU's device nodes. Empty: none.
  std::string folder;
  // A function of the driver's library, whose folder holds more that the driver loads when it needs
  // it.
  const void* driver = nullptr;
  // Somebody takes Confinement::refused_calls and answers there.
  bool tells_refused_calls = false;
  // For a driver that does not start under the lists of files and of allowed system calls: no list of
  // files, and calls that no driver needs are refused instead.
  bool lenient = false;
};

struct Confinement {
  struct Mechanism {
    const char* name;
    bool is_had;
    std::string detail;  // what was had; or why not, and what follows
  };
  std::vector<Mechanism> mechanisms;
  bool has_folder = false;
  // By which the kernel tells of system calls that are refused; invalid where it cannot. Whoever
  // holds it can let such a call through: to be handed over and closed before anything else.
  channel::UniqueFd refused_calls;
  // Keeps the kernel's entries of this process and of its threads in /proc, which the rules for files
  // name.
  channel::UniqueFd threads;
};

// False with a message where what no machine lacks was refused: the own user that was asked for,
// the end of all capabilities, the filter. The process must end then.
[[nodiscard]] bool Confine(const ConfinementWishes& wishes, Confinement* confinement,
                           std::string* error);

// One line for what was had, and one for each mechanism that was not.
void LogMechanisms(const Confinement& confinement);

}  // namespace gpuloom::executor
