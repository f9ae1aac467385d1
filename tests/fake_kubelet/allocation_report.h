// SPDX-License-Identifier: Apache-2.0
// What the scheduler counted for a container's allocation. Not a kubelet's business: fake-kubelet
// prints it beside the exit status, so that a demo can show quota and kernels. Found from the
// mounted directory, which is <state>/allocations/<name>; the scheduler is asked at
// <state>/gpus/<uuid>/control.sock.
#pragma once

#include <optional>

#include "proto/control/messages.h"
#include "tests/fake_kubelet/fake_kubelet.h"

namespace gpuloom {

// Empty when no scheduler answers, or none knows the allocation. Blocks for a few seconds at most.
std::optional<control::AllocationState> AskScheduler(const FakeContainer& container);

// The same once the container's sessions have ended and are counted, which is a moment after its
// processes; what is known after a few seconds if they do not.
std::optional<control::AllocationState> AskSchedulerAtTheEnd(const FakeContainer& container);

}  // namespace gpuloom
