// SPDX-License-Identifier: Apache-2.0
#include "agent/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "agent/node/gpu_standing.h"
#include "agent/node/process.h"
#include "agent/run/command.h"
#include "agent/run/installation.h"
#include "agent/run/local_allocation.h"
#include "agent/run/scheduler_start.h"
#include "agent/run/scheduler_target.h"
#include "agent/run/state_dir.h"
#include "agent/run/tenant_folder.h"
#include "agent/run/unsupported_report.h"
#include "proto/control/client.h"
#include "proto/cuda/driver_features.h"
#include "proto/wire/session.h"

namespace gpuloom::run {
namespace {

constexpr int kHostFailed = 125;  // as env(1) and docker run: not the command's own status
// How many schedulers are asked: each may end between our finding it and our asking.
constexpr int kMostAttempts = 4;

int Fail(const std::string& error) {
  fprintf(stderr, "gpuloom: %s\n", error.c_str());
  return kHostFailed;
}

// What the command is known by.
struct LocalTenant {
  TenantFolder folder;  // outlives the allocation, which lives as long as the client's connection
  control::Client client;
};

bool IsOpen(const std::string& state_dir, std::string* error) {
  const std::string drained = DrainReason(state_dir);
  if (drained.empty()) return true;
  *error = "the GPU of " + state_dir + " is " + drained + "; gpuloom drain --undo opens it again";
  return false;
}

bool Allocate(const CommandLine& line, LocalTenant* tenant, std::string* error) {
  LocalAllocation allocation;
  return Describe(line, tenant->folder.name(), tenant->folder.path(),
                  tenant->client.device_memory_bytes(), &allocation, error) &&
         tenant->client.AddAllocation(allocation.add, error) &&
         tenant->client.BindAllocation(allocation.bind, error);
}

// A scheduler may be about to end, unused, between our finding it and our asking: then there is
// room for another.
bool AllocateAtScheduler(const CommandLine& line, const SchedulerTarget& target,
                         const TenantLibraries& libraries, LocalTenant* tenant,
                         std::string* error) {
  for (int attempt = 1;; ++attempt) {
    if (!ReachScheduler(target, &tenant->client, error)) return false;
    if (!tenant->folder.made() && !tenant->folder.Make(target.state_dir, libraries, error)) {
      return false;
    }
    if (Allocate(line, tenant, error)) return true;
    if (tenant->client.connected() || attempt == kMostAttempts) return false;
  }
}

bool Admit(const CommandLine& line, const SchedulerTarget& target, const TenantLibraries& libraries,
           LocalTenant* tenant, std::string* error) {
  if (!IsOpen(target.state_dir, error) ||
      !AllocateAtScheduler(line, target, libraries, tenant, error)) {
    return false;
  }
  std::string ignored;
  // Again, since the scheduler may have been started meanwhile: who orders it from now on finds
  // the allocation and waits for it.
  if (!IsOpen(target.state_dir, error)) {
    (void)tenant->client.RemoveAllocation(tenant->folder.name(), &ignored);
    return false;
  }
  // A failure is ignored: the command's first call starts the executor, too, and gets the error.
  (void)tenant->client.PrepareExecutor(tenant->folder.name(), &ignored);
  return true;
}

void SayWhatDriverLacks(const control::Client& client) {
  const std::string off = MissingFeatures(static_cast<int>(client.driver_version()));
  if (!off.empty()) fprintf(stderr, "gpuloom: %s\n", off.c_str());
}

int RunAsTenant(const std::vector<std::string>& command, const TenantFolder& folder,
                const TenantLibraries& libraries, const control::Client& client,
                const std::string& state_dir) {
  const std::string preload = folder.Preload(libraries.cuda, getenv("LD_PRELOAD"));
  const std::string library_path = folder.LibraryPath(getenv("LD_LIBRARY_PATH"));
  const std::string path = folder.Path(getenv("PATH"));
  // Until here a signal simply ends us, and with us the allocation.
  BlockSignals();
  const std::string log = state_dir + "/scheduler.log";
  return RunCommand(
      command,
      {{"LD_PRELOAD", preload},
       {"LD_LIBRARY_PATH", library_path},
       {"PATH", path},
       {wire::kSocketDirVariable, folder.path()}},
      client.fd(),
      [&log] { fprintf(stderr, "gpuloom: the scheduler is gone; its log is %s\n", log.c_str()); });
}

// If the scheduler is gone, that was reported already.
void Dismiss(LocalTenant* tenant) {
  SayUnsupported(tenant->folder.name(), &tenant->client);
  std::string ignored;
  if (!tenant->client.RemoveAllocation(tenant->folder.name(), &ignored)) tenant->client.Close();
}

}  // namespace

int Run(const CommandLine& line) {
  std::string error;
  Installation installation;
  if (!FindInstallation(OwnProgram(), &installation, &error)) return Fail(error);
  SchedulerTarget target = TargetOf(line, installation);
  if (!MakeStateDir(&target.state_dir, &error)) return Fail(error);

  LocalTenant tenant;
  if (!Admit(line, target, installation.libraries, &tenant, &error)) return Fail(error);
  SayWhatDriverLacks(tenant.client);
  const int status = RunAsTenant(line.command, tenant.folder, installation.libraries, tenant.client,
                                 target.state_dir);
  Dismiss(&tenant);
  return status;
}

}  // namespace gpuloom::run
