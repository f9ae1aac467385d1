// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/allocation_report.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "proto/control/client.h"

namespace gpuloom {

std::optional<control::AllocationState> AskScheduler(const FakeContainer& container) {
  namespace fs = std::filesystem;
  const fs::path directory = container.HostPath("/var/run/gpuloom");
  if (directory.empty() || container.device_ids.empty()) return std::nullopt;
  const std::string device = *container.device_ids.begin();
  std::string gpu = device.substr(0, device.find("::"));
  gpu.replace(0, 4, "GPU-");
  const fs::path path =
      directory.parent_path().parent_path() / "gpus" / gpu / control::kControlSocketName;
  control::Client client;
  std::string error;
  std::vector<control::AllocationState> states;
  if (!client.Connect(path.parent_path(), std::chrono::seconds(60), &error) ||
      !client.ListAllocations(&states, &error)) {
    return std::nullopt;
  }
  for (const control::AllocationState& state : states) {
    if (control::TextOf(state.name) == directory.filename()) {
      return state;
    }
  }
  return std::nullopt;
}

std::optional<control::AllocationState> AskSchedulerAtTheEnd(const FakeContainer& container) {
  std::optional<control::AllocationState> state = AskScheduler(container);
  for (int turn = 0; turn < 3000 && state.has_value() && state->sessions != 0; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state = AskScheduler(container);
  }
  return state;
}

}  // namespace gpuloom
