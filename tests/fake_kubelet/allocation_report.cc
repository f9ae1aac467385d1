#include "tests/fake_kubelet/allocation_report.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "proto/control/connection.h"

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
  channel::UniqueFd socket = channel::ConnectTo(path.c_str());
  if (!socket.valid()) return std::nullopt;
  const timeval timeout = {3, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  control::Connection connection(std::move(socket));
  control::ControlHello hello = {};
  hello.version = control::kControlVersion;
  control::Incoming in;
  control::Answer answer = {};
  if (!connection.Send(1, hello) || !connection.Receive(&in) || !in.As(&answer) || answer.ok == 0)
    return std::nullopt;
  if (!connection.Send(2, control::ListAllocations{})) return std::nullopt;
  std::optional<control::AllocationState> found;
  while (connection.Receive(&in)) {
    control::AllocationState state = {};
    if (!in.As(&state)) break;
    if (std::string(state.name, control::TextLength(state.name)) == directory.filename())
      found = state;
  }
  return found;
}

std::optional<control::AllocationState> AskSchedulerAtTheEnd(const FakeContainer& container) {
  std::optional<control::AllocationState> state = AskScheduler(container);
  for (int turn = 0; turn < 250 && state.has_value() && state->sessions != 0; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state = AskScheduler(container);
  }
  return state;
}

}  // namespace gpuloom
