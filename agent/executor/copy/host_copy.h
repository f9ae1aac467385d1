// SPDX-License-Identifier: Apache-2.0
// Copies from pinned memory to pinned memory. CUDA makes these while its caller waits for everything before
// them in the stream (documented for cuMemcpyAsync, "API synchronization behavior"; measured with
// 580.159.04, for cuGraphLaunch too), and our caller serves everybody. So a worker makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/executor/session/session_port.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// A block of rows, and how far its copy has come. Both sides are judged, from their first byte to the last.
struct HostBlock {
  struct Side {
    uint64_t address;
    uint64_t row_bytes;    // from row to row
    uint64_t slice_bytes;  // from slice to slice
  };
  Side to;
  Side from;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;

  uint64_t row = 0;  // of all slices, one after the other
  uint64_t x_bytes = 0;

  bool IsDone() const { return width_bytes == 0 || row == height * depth; }
};

// Both sides are pinned memory.
bool IsHostCopy(const wire::GraphCopy& copy);
HostBlock HostBlockOf(const wire::GraphCopy& copy);

// A part of the session; ring thread only.
class HostCopies final : public Part {
 public:
  explicit HostCopies(SessionPort* port) : Part(port) {}

  // `on_done` runs when the copy is made, unless the session ends before; a failure is told as the stream's.
  void Copy(const HostBlock& block, wire::StreamId stream, std::function<void()> on_done);

 private:
  struct Run;
  void CopyNextPiece(const std::shared_ptr<Run>& run);
};

}  // namespace gpuloom::executor
