// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/tally.h"

#include <bit>

#include "agent/executor/graph/graph.h"
#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {
namespace {

using arbiter::Engine;
using arbiter::LaunchKey;

// Which of the device's engines a copy keeps busy. Copies within the device count with the kernels.
Engine EngineOf(wire::CopyKind kind) {
  if (kind == wire::CopyKind::kHostToDevice) return Engine::kCopyToDevice;
  if (kind == wire::CopyKind::kDeviceToHost) return Engine::kCopyFromDevice;
  return Engine::kCompute;
}

Engine EngineOf(const wire::GraphCopy& copy) {
  const bool from_host = copy.from.space == wire::GraphCopySpace::kHost;
  const bool to_host = copy.to.space == wire::GraphCopySpace::kHost;
  if (from_host == to_host) return Engine::kCompute;
  return from_host ? Engine::kCopyToDevice : Engine::kCopyFromDevice;
}

// Copies and fills of about the same size, within a power of two, take about the same time. `kind`
// is the command's index in Work, which no function's address collides with.
LaunchKey OfBytes(size_t kind, uint64_t bytes) {
  LaunchKey key;
  key.function = kind;
  key.grid[0] = static_cast<uint32_t>(std::bit_width(bytes));
  return key;
}

// Kinds of work that are no alternatives of Work, and so beside these, which are known by their indices.
constexpr uint64_t kClear = std::variant_size_v<Work>;
constexpr uint64_t kChunk = kClear + 1;

// Within a power of two: of a function by blocks, of a kind of work by the commands in it.
uint64_t GroupOf(uint64_t function_or_kind, uint64_t size) {
  return function_or_kind << 8 | static_cast<uint64_t>(std::bit_width(size));
}

// Parameters are not in the key: the same kernel with the same shape usually takes as long.
LaunchKey OfLaunch(CUkernel kernel, const auto& request) {
  LaunchKey key;
  key.function = reinterpret_cast<uintptr_t>(kernel);
  for (size_t i = 0; i < 3; ++i) {
    key.grid[i] = request.grid[i];
    key.block[i] = request.block[i];
  }
  key.shared_bytes = request.dynamic_shared_bytes;
  const uint64_t blocks = uint64_t{key.grid[0]} * key.grid[1] * key.grid[2];
  key.group = GroupOf(key.function, blocks);
  return key;
}

// For std::visit; the last overload is for all kinds of work that are not named.
struct Engines {
  std::optional<Engine> operator()(const CopyWork& work) const {
    return EngineOf(work.request.kind);
  }
  std::optional<Engine> operator()(const CopyInlineWork&) const { return Engine::kCopyToDevice; }
  std::optional<Engine> operator()(const CopyBlockWork& work) const { return EngineOf(work.copy); }
  std::optional<Engine> operator()(const NoWork&) const { return std::nullopt; }
  std::optional<Engine> operator()(const WriteValueWork&) const { return std::nullopt; }
  std::optional<Engine> operator()(const RecordWork&) const { return std::nullopt; }
  std::optional<Engine> operator()(const auto&) const { return Engine::kCompute; }
};

struct Keys {
  const StreamCommand& command;

  LaunchKey operator()(const LaunchWork& work) const { return OfLaunch(work.kernel, work.request); }
  LaunchKey operator()(const LaunchExWork& work) const {
    return OfLaunch(work.kernel, work.request);
  }
  LaunchKey operator()(const CopyWork& work) const {
    return OfBytes(command.work.index(), work.request.size_bytes);
  }
  LaunchKey operator()(const CopyInlineWork&) const {
    return OfBytes(command.work.index(), command.payload.size());
  }
  LaunchKey operator()(const FillWork& work) const {
    return OfBytes(command.work.index(), work.request.count * work.request.element_bytes);
  }
  LaunchKey operator()(const CopyBlockWork& work) const {
    return OfBytes(command.work.index(), BytesOf(work.copy));
  }
  LaunchKey operator()(const FillBlockWork& work) const {
    const wire::GraphFill& fill = work.fill;
    return OfBytes(command.work.index(), fill.width * fill.height * fill.element_bytes);
  }
  // A graph is one piece, and an upload of it takes another time than a launch.
  LaunchKey operator()(const GraphWork& work) const {
    LaunchKey key;
    key.function = reinterpret_cast<uintptr_t>(work.graph.get());
    key.shared_bytes = work.upload;
    if (!work.upload) key.group = GroupOf(command.work.index(), work.graph->nodes());
    return key;
  }
  LaunchKey operator()(const ChunkWork& work) const { return KeyOf(*work.chunk); }
  LaunchKey operator()(const auto&) const { return {}; }
};

struct CalledKernels {
  CUkernel operator()(const LaunchWork& work) const { return work.kernel; }
  CUkernel operator()(const LaunchExWork& work) const { return work.kernel; }
  CUkernel operator()(const ChunkWork& work) const { return work.chunk->nodes.front().kernel; }
  CUkernel operator()(const auto&) const { return nullptr; }
};

}  // namespace

std::optional<Engine> EngineOf(const StreamCommand& command) {
  return std::visit(Engines(), command.work);
}

CUkernel KernelOf(const StreamCommand& command) {
  return std::visit(CalledKernels(), command.work);
}

uint64_t BytesOf(const wire::GraphCopy& copy) {
  return copy.width_bytes * copy.height * copy.depth;
}

LaunchKey KeyOf(const StreamCommand& command) { return std::visit(Keys{command}, command.work); }

// The signature stands for functions and shapes; the length comes besides.
LaunchKey KeyOf(const Chunk& chunk) {
  LaunchKey key;
  key.function = chunk.signature;
  key.grid[0] = chunk.size();
  key.group = GroupOf(kChunk, chunk.size());
  return key;
}

LaunchKey KeyOfClear(uint64_t size_bytes) { return OfBytes(kClear, size_bytes); }

}  // namespace gpuloom::executor
