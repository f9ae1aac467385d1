// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/service.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/printing/driver_output.h"
#include "agent/executor/process/confinement.h"
#include "agent/executor/process/environment.h"
#include "agent/executor/process/log.h"
#include "agent/executor/process/own_folder.h"
#include "agent/executor/process/refusal.h"
#include "agent/executor/session/loop.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/trace/cupti.h"
#include "agent/executor/trace/tracer.h"
#include "agent/node/log_signals.h"
#include "proto/control/version.h"

namespace gpuloom::executor {
namespace {

const void* FunctionOf(const Driver& driver) {
  return reinterpret_cast<const void*>(driver.cuInit);
}

// While this process may still read every file.
bool LoadLibraries(const std::string& cuda_library, Driver* driver, TraceMeans* means,
                   std::string* error) {
  if (!Load(cuda_library.c_str(), driver, error)) return false;
  means->cupti.emplace();
  if (!LoadCupti(CuptiSetting(), FunctionOf(*driver), &*means->cupti, &means->why_not)) {
    means->cupti.reset();
  }
  return true;
}

// Before cuInit.
bool GiveUpTheRest(const CommandLine& line, const Driver& driver, int scheduler,
                   Confinement* confinement, std::string* error) {
  const ConfinementWishes wishes = {line.user, line.folder, FunctionOf(driver),
                                    line.tells_refused_calls, line.lenient};
  if (!Confine(wishes, confinement, error) ||
      !HandOver(scheduler, std::move(confinement->refused_calls), error)) {
    return false;
  }
  LogMechanisms(*confinement);
  // cuInit reads these variables.
  UseFolder(confinement->has_folder ? line.folder : "");
  return true;
}

void LogWhatIsLoaded(const TraceMeans& means) {
  Log(LogLevel::kDebug, "start: the driver is loaded");
  Log(LogLevel::kDebug, "start: %s",
      means.cupti ? ("CUPTI is " + means.cupti->path).c_str() : means.why_not.c_str());
}

void LogWhomItServes(const CommandLine& line) {
  Log(LogLevel::kDebug, "start: the context is made");
  if (line.domain.empty()) {
    Log(LogLevel::kInfo, "is a spare one on %s", line.gpu.c_str());
  } else {
    Log(LogLevel::kInfo, "serves domain %s on %s", line.domain.c_str(), line.gpu.c_str());
  }
}

// Without destructors: kernels may still run, and the driver's own would wait for them.
[[noreturn]] void RunLoop(const CommandLine& line, Device* device, channel::UniqueFd scheduler,
                          DriverOutput* output, const TraceMeans& means) {
  const bool batches = IsBatchingOn();
  Loop loop(device, std::move(scheduler), output, batches, /*submit_threads=*/-1,
            line.memory_limit_bytes, IsSharingOn(), &means);
  std::string error;
  // The loop has notified the scheduler already; it owns the socket.
  if (!loop.Start(&error)) {
    Log(LogLevel::kError, "%s", error.c_str());
    _exit(1);
  }
  loop.ReserveObjects();
  if (batches) loop.ReserveGraphs();
  HoldLogSignals(false);
  const Loop::Outcome outcome = loop.Run();
  if (outcome == Loop::Outcome::kSchedulerGone) {
    Log(LogLevel::kInfo, "ends: the scheduler has hung up");
  }
  _exit(outcome == Loop::Outcome::kSchedulerGone ? 0 : 1);
}

}  // namespace

int Serve(const CommandLine& line) {
  channel::UniqueFd scheduler(control::kExecutorControlFd);
  std::string error;
  const auto refuse = [&](bool driver_failed = false) {
    Refuse(std::move(scheduler), error, driver_failed);
    return 1;
  };
  if (!CanServeScheduler(line.control_version, &error)) return refuse();
  HandleLogSignals(kExecutorProgram);
  HoldLogSignals(true);
  PrepareForDriver();

  Driver driver;
  DriverOutput output;
  Confinement confinement;
  TraceMeans means;
  if (!output.Capture(&error) || !LoadLibraries(line.cuda_library, &driver, &means, &error) ||
      !GiveUpTheRest(line, driver, scheduler.get(), &confinement, &error)) {
    return refuse();
  }
  LogWhatIsLoaded(means);

  Device device(driver);
  if (const CUresult result = device.Start(line.gpu, &error); result != CUDA_SUCCESS) {
    return refuse(MayBeConfinement(result));
  }
  LogWhomItServes(line);
  RunLoop(line, &device, std::move(scheduler), &output, means);
}

}  // namespace gpuloom::executor
