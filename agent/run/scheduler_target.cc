// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_target.h"

#include "agent/run/state_dir.h"

namespace gpuloom::run {

SchedulerTarget TargetOf(const CommandLine& line, const Installation& installation) {
  SchedulerTarget target;
  target.program = installation.scheduler;
  target.softgpu = line.softgpu;
  // The software driver has one device.
  target.gpu = line.softgpu ? "0" : line.gpu;
  target.cuda_library = line.softgpu ? installation.softgpu : "libcuda.so.1";
  target.state_dir = !line.state_dir.empty()
                         ? line.state_dir
                         : DefaultStateDir(line.softgpu ? "softgpu" : "gpu" + line.gpu);
  return target;
}

}  // namespace gpuloom::run
