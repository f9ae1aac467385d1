// SPDX-License-Identifier: Apache-2.0
// gpuloom policy: answers questions about a policy file without a GPU, a node or a cluster; it reads the file and
// prints. Only show and diff are about the policy in force on this node; diff asks the schedulers who runs.
//
// gpuloom doctor: whether this node has what gpuloom needs, and what to do; reads files and asks the schedulers.
//
// gpuloom suspend, gpuloom resume: stop a pod's work on this machine's GPUs, and let it go on; asks the schedulers.
//
// gpuloom drain: keeps new tenants off this machine's GPUs; writes the order into their folders, and asks the
// schedulers which tenants are there.
//
// gpuloom tenants, gpus, top, version: who uses this machine's GPUs, how much, by which release; asks the schedulers.
//
// gpuloom completion: prints a shell's completion of the command line, made from its definition.
//
// gpuloom trace: what the GPUs do for all tenants, as a file; asks the schedulers, and reads what executors write.
//
// gpuloom run: a tenant on a bare machine, for people without Kubernetes, for tests and for
// benchmarks.
//
//   gpuloom run ── starts ──→ the command, with libgpuloom.so preloaded and NVML in its library path
//       │                        │ gpuloom.sock of its allocation
//       └── control.sock ──→ gpuloom-scheduler (started when none answers, ends when unused)
//
// It stands where the node's agent stands in a cluster: it says who the tenant is, and takes the
// allocation back when the command has ended (the scheduler does so too, should this process die).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/gpu_standing.h"
#include "agent/node/process.h"
#include "agent/run/command.h"
#include "agent/run/command_line.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/drain.h"
#include "agent/run/installation.h"
#include "agent/run/local_allocation.h"
#include "agent/run/running_tenants.h"
#include "agent/run/scheduler_start.h"
#include "agent/run/scheduler_target.h"
#include "agent/run/state_dir.h"
#include "agent/run/status.h"
#include "agent/run/suspend.h"
#include "agent/run/tenant_folder.h"
#include "agent/run/top.h"
#include "agent/run/trace.h"
#include "agent/run/unsupported_report.h"
#include "proto/cuda/driver_features.h"
#include "proto/wire/session.h"

namespace gpuloom::run {
namespace {

constexpr int kHostFailed = 125;  // as env(1) and docker run: not the command's own status

int Fail(const std::string& error) {
  fprintf(stderr, "gpuloom: %s\n", error.c_str());
  return kHostFailed;
}

// In this order also where both are one pipe.
int Print(const Answer& answer, FILE* text_to = stdout) {
  const bool is_written = fputs(answer.text.c_str(), text_to) >= 0 && fflush(text_to) == 0;
  const int error = errno;
  fputs(answer.trouble.c_str(), stderr);
  if (is_written) return answer.exit_status;
  fprintf(stderr, "gpuloom: the answer could not be written whole: %s\n", strerror(error));
  return answer.exit_status == kGood ? kNotGood : answer.exit_status;
}

std::string WhyDrained(const std::string& state_dir) {
  const std::string drained = DrainReason(state_dir);
  return drained.empty() ? ""
                         : "the GPU of " + state_dir + " is " + drained +
                               "; gpuloom drain --undo opens it again";
}

int Main(int argc, char** argv) {
  int status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &status);
  if (!line) return status;
  if (line->policy && line->policy->kind == PolicyCommand::Kind::kDiff) {
    return Print(AnswerAboutChange(*line->policy, RunningTenants(line->policy->state_dir)));
  }
  if (line->policy) return Print(AnswerAboutPolicy(*line->policy));
  if (line->suspend) return Print(Suspend(*line->suspend));
  if (line->status) return Print(AnswerAboutStatus(*line->status));
  if (line->top) return Top(*line->top);
  if (line->doctor) return Print(Doctor(*line->doctor));
  if (line->drain) {
    return Print(Drain(*line->drain, [](const std::string& said) {
      fprintf(stderr, "gpuloom: %s\n", said.c_str());
    }));
  }

  if (line->trace) {
    // Standard output may be the trace.
    return Print(Trace(*line->trace), line->trace->file == "-" ? stderr : stdout);
  }

  std::string error;
  Installation installation;
  if (!FindInstallation(OwnProgram(), &installation, &error)) return Fail(error);
  SchedulerTarget target = TargetOf(*line, installation);
  if (!MakeStateDir(&target.state_dir, &error)) return Fail(error);

  if (const std::string drained = WhyDrained(target.state_dir); !drained.empty()) {
    return Fail(drained);
  }

  TenantFolder folder;  // outlives the allocation, which lives as long as the client's connection
  control::Client client;
  // A scheduler may be about to end, unused, between our finding it and our asking: then there is
  // room for another.
  for (int attempt = 0;; ++attempt) {
    if (!ReachScheduler(target, &client, &error)) return Fail(error);
    if (!folder.made() && !folder.Make(target.state_dir, installation.libraries, &error)) {
      return Fail(error);
    }
    LocalAllocation allocation;
    if (Describe(*line, folder.name(), folder.path(), client.device_memory_bytes(), &allocation,
                 &error) &&
        client.AddAllocation(allocation.add, &error) &&
        client.BindAllocation(allocation.bind, &error)) {
      // Again, since the scheduler may have been started meanwhile: who orders it from now on finds
      // the allocation and waits for it.
      if (const std::string drained = WhyDrained(target.state_dir); !drained.empty()) {
        (void)client.RemoveAllocation(folder.name(), &error);
        return Fail(drained);
      }
      // A failure is ignored: the command's first call starts the executor, too, and gets the error.
      std::string ignored;
      (void)client.PrepareExecutor(folder.name(), &ignored);
      break;
    }
    if (client.connected() || attempt == 3) return Fail(error);
  }

  if (const std::string off = MissingFeatures(static_cast<int>(client.driver_version()));
      !off.empty()) {
    fprintf(stderr, "gpuloom: %s\n", off.c_str());
  }
  const std::string preload = folder.Preload(installation.libraries.cuda, getenv("LD_PRELOAD"));
  const std::string library_path = folder.LibraryPath(getenv("LD_LIBRARY_PATH"));
  const std::string path = folder.Path(getenv("PATH"));
  // Until here a signal simply ends us, and with us the allocation.
  BlockSignals();
  const std::string log = target.state_dir + "/scheduler.log";
  status = RunCommand(
      line->command,
      {{"LD_PRELOAD", preload},
       {"LD_LIBRARY_PATH", library_path},
       {"PATH", path},
       {wire::kSocketDirVariable, folder.path()}},
      client.fd(),
      [&log] { fprintf(stderr, "gpuloom: the scheduler is gone; its log is %s\n", log.c_str()); });
  SayUnsupported(folder.name(), &client);
  // If the scheduler is gone, that was reported already; the command's own status is returned.
  if (!client.RemoveAllocation(folder.name(), &error)) client.Close();
  return status;
}

}  // namespace
}  // namespace gpuloom::run

int main(int argc, char** argv) { return gpuloom::run::Main(argc, argv); }
