// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/regions.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

#include "proto/channel/socket.h"

namespace gpuloom::executor {

std::array<channel::UniqueFd, control::kSessionFds> TestingRegions::Make(uint64_t arena_bytes) {
  using Access = channel::Mapping::Access;
  std::array<channel::UniqueFd, control::kSessionFds> fds;
  channel::UniqueFd& command = fds[control::kSessionCommandFd];
  channel::UniqueFd& completion = fds[control::kSessionCompletionFd];
  channel::UniqueFd& theirs = fds[control::kSessionArenaFd];
  command = channel::MakeSealedMemory("commands", sizeof(wire::CommandRegion));
  completion = channel::MakeSealedMemory("completions", sizeof(wire::CompletionRegion));
  theirs = channel::MakeSealedMemory("arena", arena_bytes);
  arena = channel::UniqueFd(fcntl(theirs.get(), F_DUPFD_CLOEXEC, 0));
  commands.Unmap();
  completions.Unmap();
  if (!arena.valid() ||
      !channel::MakePair(SOCK_STREAM, &doorbell, &fds[control::kSessionDoorbellFd]) ||
      !commands.Map(command.get(), sizeof(wire::CommandRegion), Access::kReadWrite) ||
      !completions.Map(completion.get(), sizeof(wire::CompletionRegion), Access::kReadOnly)) {
    perror("a session's regions");
    abort();
  }
  auto* command_region = reinterpret_cast<wire::CommandRegion*>(commands.data());
  auto* completion_region = reinterpret_cast<wire::CompletionRegion*>(completions.data());
  writer = wire::RingWriter(command_region, completion_region);
  reader = wire::CompletionReader(completion_region);
  return fds;
}

}  // namespace gpuloom::executor
