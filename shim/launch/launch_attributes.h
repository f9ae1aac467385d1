// SPDX-License-Identifier: Apache-2.0
// CUDA's launch attributes, checked and converted to the wire's terms, for launches and for kernels in graphs. Keeps
// no state; safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/launch_commands.h"

namespace gpuloom {

// A launch's attributes.
struct LaunchAsks {
  wire::LaunchAttributes attributes;
  // To be recorded after the launch: a programmatic and a completion event. Either may be late (CUDA promises only
  // "not before"), and recording after the kernel's end is never too early.
  CUevent events[2];
  uint32_t event_count;
  // As the program passed them, for when the launch is recorded instead.
  const CUlaunchAttribute* list;
  uint32_t list_count;

  bool empty() const { return attributes.set == 0 && event_count == 0; }
};

// Later entries replace earlier ones of the same kind. INVALID_VALUE for an unknown attribute or value, NOT_SUPPORTED
// (logged once, by number) for a node that kernels update.
[[nodiscard]] CUresult ReadLaunchAttributes(const CUlaunchAttribute* attributes, unsigned count,
                                            LaunchAsks* asks);

}  // namespace gpuloom
