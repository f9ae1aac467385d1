// SPDX-License-Identifier: Apache-2.0
// gpuloom-executor: owns the CUDA context of one GPU and one trust domain, and runs the commands of
// that domain's tenants.
//
// Process model. Started by the scheduler with exec; descriptor 3 is the control socket to it, and
// nothing else is inherited but stderr for the log and a lock on its user, which it never looks at.
// It loads the driver's library and CUPTI, gives up whatever it does not need (confinement.h), and only then
// lets the driver start; who its tenants are it hears later. Sessions come as descriptors over that socket:
// a tenant's ring (mapped read-only), its completion region, its arena and its doorbell.
//
//   ring thread (this one)   reads all rings, submits, polls completion, publishes; loop.h
//   submit threads (2)       launch for several tenants at work; submitters.h
//   workers (4 + 3 + 1)      module loads and lookups; memory mapping and pinning; what waits for a
//                            quiet moment; one more for each compilation whose tenant has left
//                            it, up to 16; work_pool.h
//   linkers                  one for each linker state of a tenant's; link.cc
//   while a trace runs       one that reads CUPTI's records; activity.h
//   the driver's own threads
//
// What CUPTI makes, from the first trace on, are threads of its own too.
//
// The process ends when the control socket closes, or after a device fault, when every tenant has
// been told; what it held is freed by the kernel and the driver. Its folder is removed by another
// process of this program and the same user.
#include <stdio.h>

#include <string>

#include "agent/executor/command_line.h"
#include "agent/executor/process/environment.h"
#include "agent/executor/process/log.h"
#include "agent/executor/process/own_folder.h"
#include "agent/executor/process/own_user.h"
#include "agent/executor/process/service.h"
#include "agent/executor/trace/cupti.h"
#include "proto/control/version.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {
namespace {

int Remove(const CommandLine& line) {
  std::string error;
  if ((line.user == 0 || BecomeUser(line.user, {}, &error)) &&
      RemoveFolder(line.folder_to_remove, &error)) {
    return 0;
  }
  Log(LogLevel::kError, "%s", error.c_str());
  return 1;
}

// The release, and CUPTI as it would be found by an executor with this environment.
int ShowVersion(const CommandLine& line) {
  puts(VersionLine("gpuloom-executor").c_str());
  const std::string library = line.cuda_library.empty() ? "libcuda.so.1" : line.cuda_library;
  Driver driver;
  Cupti cupti;
  std::string why;
  // Without the driver, CUPTI is not looked for beside it.
  const bool has_driver = Load(library.c_str(), &driver, &why);
  const void* const of_driver = has_driver ? reinterpret_cast<const void*>(driver.cuInit) : nullptr;
  if (LoadCupti(CuptiSetting(), of_driver, &cupti, &why)) {
    printf("CUPTI: %s\n", cupti.description.c_str());
  } else {
    printf("no CUPTI: %s\n", why.c_str());
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line) return 2;
  if (line->shows_version) return ShowVersion(*line);
  SetLogLevel(LogLevelOf(line->log_level));
  if (!line->folder_to_remove.empty()) return Remove(*line);
  return Serve(*line);
}

}  // namespace
}  // namespace gpuloom::executor

int main(int argc, char** argv) { return gpuloom::executor::Main(argc, argv); }
