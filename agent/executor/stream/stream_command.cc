// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/stream_command.h"

#include "agent/executor/image/texture_reference.h"
#include "proto/wire/backlog.h"

namespace gpuloom::executor {
namespace {

// A program that binds anew before each launch may leave the last reference to all of it to a
// single launch.
size_t BindingBytes(const std::shared_ptr<const Bindings>& bindings) {
  constexpr size_t kEach = sizeof(BindingRef) + sizeof(Binding);
  static_assert(kEach <= wire::kBacklogBytesOfReference);
  return bindings == nullptr ? 0 : sizeof(Bindings) + bindings->each.size() * kEach;
}

// Each with what the allocator and its reference count take.
constexpr size_t kPointBytes = sizeof(PointRef) + sizeof(Point) + 48;

}  // namespace

size_t CostBytes(const StreamCommand& command) {
  size_t bytes =
      sizeof(StreamCommand) + command.payload.size() + DependencyBytes(command.dependencies);
  if (const auto* chunk = std::get_if<ChunkWork>(&command.work)) {
    bytes += sizeof(Chunk) + chunk->chunk->cost_bytes();
  } else if (const auto* launch = std::get_if<LaunchWork>(&command.work)) {
    bytes += BindingBytes(launch->bindings);
  } else if (const auto* asking = std::get_if<LaunchExWork>(&command.work)) {
    bytes += BindingBytes(asking->bindings);
  } else if (const auto* graph = std::get_if<GraphWork>(&command.work)) {
    bytes += graph->points.size() * kPointBytes;
  } else if (std::holds_alternative<RecordWork>(command.work)) {
    bytes += kPointBytes;
  }
  return bytes;
}

uint64_t FirstTicket(const StreamCommand& command) {
  const auto* work = std::get_if<ChunkWork>(&command.work);
  return work == nullptr ? static_cast<uint64_t>(command.ticket) : work->chunk->first_ticket;
}

}  // namespace gpuloom::executor
