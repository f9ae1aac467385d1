// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/refusal.h"

#include "agent/executor/process/log.h"

namespace gpuloom::executor {

bool MayBeConfinement(CUresult result) {
  switch (result) {
    // Codes for what the device or its settings lack: they do not depend on the calling process.
    case CUDA_SUCCESS:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return false;
    default:
      return true;
  }
}

void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed) {
  Log(LogLevel::kError, "%s", error.c_str());
  control::Connection connection(std::move(control));
  control::ExecutorReady ready = {};
  ready.driver_failed = driver_failed;
  control::SetText(ready.message, error.c_str());
  // A scheduler that is gone needs no refusal.
  (void)connection.Send(0, ready);
}

bool CanServeScheduler(const std::string& control_version, std::string* error) {
  const std::string major = std::to_string(control::kControlMajor) + ".";
  if (control_version.starts_with(major)) return true;
  *error = "control: the scheduler that started this executor speaks control version " +
           control_version + ", the executor " +
           control::VersionText(control::kControlMajor, control::kControlMinor) +
           ": its program was replaced meanwhile; restart the scheduler";
  return false;
}

}  // namespace gpuloom::executor
