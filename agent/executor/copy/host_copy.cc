// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/copy/host_copy.h"

#include <algorithm>
#include <cstring>

#include "agent/executor/memory/host_memory.h"
#include "agent/executor/process/log.h"

namespace gpuloom::executor {
namespace {

// Takes some milliseconds, so that other sessions do not wait long for a worker.
constexpr uint64_t kPieceBytes = 16u << 20;
// The overhead of a row costs as much as copying this many more bytes.
constexpr uint64_t kRowCostBytes = 4096;

// The address of the block's next byte on this side.
uint64_t AddressOf(const HostBlock::Side& side, const HostBlock& block) {
  return side.address + block.row / block.height * side.slice_bytes +
         block.row % block.height * side.row_bytes + block.x_bytes;
}

HostBlock::Side SideOf(const wire::GraphCopyEnd& end) {
  return {end.address, end.pitch_bytes, end.pitch_bytes * end.rows};
}

// Copies up to kPieceBytes more. Returns false if pages of the arena do not exist: writing them
// would charge them to the node.
bool CopyPiece(const HostMemory& host, HostBlock* block) {
  for (uint64_t spent = 0; spent < kPieceBytes && !block->IsDone();) {
    const uint64_t bytes = std::min(block->width_bytes - block->x_bytes, kPieceBytes - spent);
    const uint64_t to = AddressOf(block->to, *block);
    const uint64_t from = AddressOf(block->from, *block);
    // Checked for each piece: a tenant may punch holes at any time.
    if (!host.Populated(to, bytes) || !host.Populated(from, bytes)) return false;
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    spent += bytes + kRowCostBytes;
    block->x_bytes += bytes;
    if (block->x_bytes != block->width_bytes) continue;
    block->x_bytes = 0;
    ++block->row;
  }
  return true;
}

}  // namespace

struct HostCopies::Run {
  HostBlock block;
  wire::StreamId stream;
  std::function<void()> on_done;
  bool failed = false;
};

bool IsHostCopy(const wire::GraphCopy& copy) {
  return copy.to.space == wire::GraphCopySpace::kHost &&
         copy.from.space == wire::GraphCopySpace::kHost;
}

HostBlock HostBlockOf(const wire::GraphCopy& copy) {
  return {SideOf(copy.to), SideOf(copy.from), copy.width_bytes, copy.height, copy.depth};
}

void HostCopies::Copy(const HostBlock& block, wire::StreamId stream,
                      std::function<void()> on_done) {
  CopyNextPiece(std::make_shared<Run>(Run{block, stream, std::move(on_done)}));
}

// Each piece is a job of its own on the session's lane, so that its allocations and mappings get
// their turn in between.
void HostCopies::CopyNextPiece(const std::shared_ptr<Run>& run) {
  memory_.Post([keep = host_, run] { run->failed = !CopyPiece(*keep, &run->block); },
               [this, run] {
                 // The gate that on_done would open was dropped with the queue.
                 if (!serving()) return;
                 if (!run->failed && !run->block.IsDone()) return CopyNextPiece(run);
                 if (run->failed) {
                   Log(LogLevel::kDebug, "session %llu (%s): pages of a pinned copy are missing",
                       static_cast<unsigned long long>(id()), label());
                   port_->ReportAsyncError(run->stream, CUDA_ERROR_INVALID_VALUE);
                 }
                 run->on_done();
               });
}

}  // namespace gpuloom::executor
