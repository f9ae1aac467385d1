// SPDX-License-Identifier: Apache-2.0
// gpuloom-record-control LISTEN SCHEDULER OUT: stands between one agent or command, which connects to
// the socket LISTEN, and the scheduler behind the socket SCHEDULER, passes every message on and writes
// all of them to OUT when either hangs up. Knows nothing of what is said.
#include <poll.h>
#include <sys/socket.h>

#include <cstdio>
#include <fstream>

#include "proto/channel/socket.h"
#include "proto/control/testing/recording.h"

namespace gpuloom {
namespace {

int Record(const char* listen_path, const char* scheduler_path, const char* out_path) {
  const channel::UniqueFd listener = channel::ListenAt(listen_path);
  pollfd coming{listener.get(), POLLIN, 0};
  if (!listener.valid() || poll(&coming, 1, -1) != 1) return 1;
  const channel::UniqueFd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const channel::UniqueFd scheduler = channel::ConnectTo(scheduler_path);
  if (!client.valid() || !scheduler.valid()) {
    perror("gpuloom-record-control");
    return 1;
  }
  control::Recording recording;
  for (;;) {
    pollfd ready[] = {{client.get(), POLLIN, 0}, {scheduler.get(), POLLIN, 0}};
    poll(ready, 2, -1);
    const bool from_scheduler = ready[1].revents != 0;
    const int from = from_scheduler ? scheduler.get() : client.get();
    control::RecordedMessage message{from_scheduler, std::vector<uint8_t>(1 << 16)};
    const ptrdiff_t size =
        channel::ReceiveMessage(from, message.bytes.data(), message.bytes.size());
    if (size < 0) break;
    message.bytes.resize(static_cast<size_t>(size));
    if (!channel::SendMessage(from_scheduler ? client.get() : scheduler.get(), message.bytes.data(),
                              message.bytes.size())) {
      break;
    }
    recording.push_back(std::move(message));
  }
  std::ofstream out(out_path);
  out << RecordingText(recording);
  return out.flush() ? 0 : 1;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: gpuloom-record-control LISTEN SCHEDULER OUT\n");
    return 2;
  }
  return gpuloom::Record(argv[1], argv[2], argv[3]);
}
