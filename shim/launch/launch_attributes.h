// SPDX-License-Identifier: Apache-2.0
// CUDA's launch attributes, judged and put into the wire's terms; for launches and for the kernels
// of graphs. Nothing here is remembered; safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/launch_commands.h"

namespace gpuloom {

// What a launch asks for.
struct LaunchAsks {
  wire::LaunchAttributes attributes;
  // To be recorded behind the launch: a programmatic and a completion event. Either may be late (CUDA
  // promises only "not before"), and none is early behind the kernel's end.
  CUevent events[2];
  uint32_t event_count;
  // As the program passed them, for what is recorded instead of launched.
  const CUlaunchAttribute* list;
  uint32_t list_count;

  bool empty() const { return attributes.set == 0 && event_count == 0; }
};

// Later entries replace earlier ones of the same kind. INVALID_VALUE for what is no attribute or no
// value of it, NOT_SUPPORTED (said once by number) for a node that kernels update.
[[nodiscard]] CUresult ReadLaunchAttributes(const CUlaunchAttribute* attributes, unsigned count,
                                            LaunchAsks* asks);

}  // namespace gpuloom
