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
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/run/command_line.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/drain.h"
#include "agent/run/run.h"
#include "agent/run/running_tenants.h"
#include "agent/run/status.h"
#include "agent/run/suspend.h"
#include "agent/run/top.h"
#include "agent/run/trace.h"

namespace gpuloom::run {
namespace {

// In this order also where both are one pipe.
int Print(const Answer& answer, FILE* text_to = stdout) {
  const bool is_written = fputs(answer.text.c_str(), text_to) >= 0 && fflush(text_to) == 0;
  const int error = errno;
  fputs(answer.trouble.c_str(), stderr);
  if (is_written) return answer.exit_status;
  fprintf(stderr, "gpuloom: the answer could not be written whole: %s\n", strerror(error));
  return answer.exit_status == kGood ? kNotGood : answer.exit_status;
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
  return Run(*line);
}

}  // namespace
}  // namespace gpuloom::run

int main(int argc, char** argv) { return gpuloom::run::Main(argc, argv); }
