// SPDX-License-Identifier: Apache-2.0
// Copies from pinned memory to pinned memory, made by a worker. For such a copy CUDA blocks the calling thread until
// everything before it in the stream is done (documented for cuMemcpyAsync, "API synchronization behavior"; measured
// with 580.159.04, for cuGraphLaunch too), and our calling thread serves all tenants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/executor/session/session_port.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// A block of rows, and how much of it has been copied. Both sides are validated from first to last byte.
struct HostBlock {
  struct Side {
    uint64_t address;
    uint64_t row_bytes;    // pitch between rows
    uint64_t slice_bytes;  // pitch between slices
  };
  Side to;
  Side from;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;

  uint64_t row = 0;  // counted over all slices
  uint64_t x_bytes = 0;

  bool IsDone() const { return width_bytes == 0 || row == height * depth; }
};

// Returns true if both sides are pinned memory.
bool IsHostCopy(const wire::GraphCopy& copy);
HostBlock HostBlockOf(const wire::GraphCopy& copy);

// A part of the session; ring thread only.
class HostCopies final : public Part {
 public:
  explicit HostCopies(SessionPort* port) : Part(port) {}

  // `on_done` runs when the copy is done, unless the session ends first; failures are reported as the stream's.
  void Copy(const HostBlock& block, wire::StreamId stream, std::function<void()> on_done);

 private:
  struct Run;
  void CopyNextPiece(const std::shared_ptr<Run>& run);
};

}  // namespace gpuloom::executor
