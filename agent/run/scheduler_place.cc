// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_place.h"

#include "agent/run/state_dir.h"

namespace gpuloom::run {

SchedulerPlace PlaceOf(const CommandLine& line, const Installation& installation) {
  SchedulerPlace place;
  place.program = installation.scheduler;
  place.softgpu = line.softgpu;
  // The software driver has one device.
  place.gpu = line.softgpu ? "0" : line.gpu;
  place.cuda_library = line.softgpu ? installation.softgpu : "libcuda.so.1";
  place.state_dir = !line.state_dir.empty()
                        ? line.state_dir
                        : DefaultStateDir(line.softgpu ? "softgpu" : "gpu" + line.gpu);
  return place;
}

}  // namespace gpuloom::run
