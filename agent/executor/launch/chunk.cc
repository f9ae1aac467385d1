// SPDX-License-Identifier: Apache-2.0
// Chunks of launches that are given to CUDA together: which launches may be collected, and how a
// chunk is submitted.
#include "agent/executor/device/device.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/launches.h"
#include "agent/executor/launch/submitters.h"
#include "agent/executor/module/kernels.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// A chain takes one place in the driver's queue, whatever its length (measured). It counts for
// more, because the device needs only a few in advance.
constexpr uint32_t kChainWeight = 4;

// How many chunks of a session other threads may have at a time, so that other sessions' chunks do
// not wait long behind them.
constexpr uint32_t kMostJobsOut = 8;

// After so many chunks of sequences that have not come up before, a stream's next ones are taken for such, too.
constexpr uint32_t kNewInARow = 8;

// CUDA's limits since compute capability 3.0: of the grid in y and z, and of the block in z. The
// grid in x may have 2^31 - 1.
constexpr uint32_t kMaxGridY = 65535;
constexpr uint32_t kMaxBlockZ = 64;

}  // namespace

// A launch that CUDA would refuse is submitted alone, so that the error belongs to it.
bool Launches::MayCollect(Kernel* looked_up, const wire::Launch::Request& request) const {
  const Kernel& kernel = *looked_up;
  if (!kernel.collects) return false;
  // Once a reference of its library was looked up, each launch binds references itself, so launches
  // are submitted one by one.
  if (kernel.library->references != nullptr) return false;
  if (const uint32_t refused = services_.chains->refused(); refused != kernel.refused_known) {
    looked_up->refused_known = refused;
    looked_up->collects = !services_.chains->Refuses(kernel.kernel);
    if (!kernel.collects) return false;
  }
  const auto& grid = request.grid;
  const auto& block = request.block;
  // Unsigned: a 0 becomes the largest number here, so the comparison refuses it as well.
  if (grid[0] == 0 || grid[0] > INT32_MAX || grid[1] - 1 >= kMaxGridY || grid[2] - 1 >= kMaxGridY) {
    return false;
  }
  if (block[2] - 1 >= kMaxBlockZ || block[0] > kernel.max_threads ||
      block[1] > kernel.max_threads) {
    return false;
  }
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  return threads != 0 && threads <= kernel.max_threads &&
         request.dynamic_shared_bytes <= kernel.max_dynamic_shared_bytes;
}

// With several tenants at work another thread launches the chunk, and the stream is busy until
// OnSubmitted. Otherwise this thread does, which saves the handover.
void Launches::SubmitChunk(Stream& stream, StreamCommand& command) {
  ChunkPtr chunk = std::move(std::get<ChunkWork>(command.work).chunk);
  port_->CountKernels(chunk->size());
  ++share_.counts.batches;
  const bool idle = stream.in_flight == 0;
  if (services_.submitters != nullptr && *services_.several_at_work && !command.is_timed) {
    stream.busy = true;
    ++jobs_out_;
    auto job = std::make_unique<SubmitJob>();
    job->chunk = std::move(chunk);
    job->cuda_stream = stream.cuda;
    job->context = stream.context;
    job->launches = this;
    job->stream = &stream;
    // Rewriting a chain takes half as long as launching one by one, so who never repeats itself has its chains rewritten
    // even if its own work could begin sooner: the others' keeps the GPU busy.
    job->idle = idle && stream.new_in_a_row < kNewInARow;
    return services_.submitters->Post(id(), std::move(job));
  }
  bool is_new = false;
  if (ChainRef chain =
          services_.chains->Launch(*chunk, {&stream, stream.cuda, stream.context, idle}, &is_new)) {
    command.weight = std::min(kChainWeight, command.weight);
    stream.chains.push_back({static_cast<uint64_t>(command.ticket), std::move(chain)});
  } else {
    SubmitOneByOne(stream, *chunk);
  }
  AfterChunk(std::move(chunk));
}

void Launches::AfterChunk(ChunkPtr chunk) {
  streams_.Recycle(std::move(chunk));
  services_.chains->MakeWanted();
}

bool Launches::HasRoom() const { return jobs_out_ < kMostJobsOut; }

void Launches::SubmitOneByOne(Stream& stream, const Chunk& chunk) {
  const Driver& cuda = services_.device->cuda();
  // `idle` decides only whether a chain is rewritten, which singles never are.
  const Chains::Target target = {&stream, stream.cuda, stream.context, false};
  const uint8_t* params = chunk.params.data();
  for (const ChunkNode& node : chunk.nodes) {
    if (services_.chains->LaunchOne(chunk, node, params, target)) {
      params += Chunk::RoundUp(node.param_bytes);
      continue;
    }
    port_->ReportAsyncError(
        stream.id, services_.device->Judge(LaunchPlainly(cuda, node, params, stream.cuda)));
    params += Chunk::RoundUp(node.param_bytes);
  }
}

// The stream still exists, and with it what was noted when it became busy: a busy stream is not
// idle, so it is not given away, not even at its session's end.
void Launches::OnSubmitted(SubmitJobPtr job) {
  Stream& stream = *job->stream;
  --jobs_out_;
  stream.new_in_a_row = job->is_new ? std::min(stream.new_in_a_row + 1, kNewInARow) : 0;
  for (const CUresult error : job->errors) port_->ReportAsyncError(stream.id, error);
  uint32_t weight = job->chunk->size();
  if (job->chain != nullptr) {
    weight = std::min(kChainWeight, weight);
    stream.chains.push_back({stream.busy_ticket, std::move(job->chain)});
  }
  AfterChunk(std::move(job->chunk));
  // The meter counted the chunk from its handover on; it began when its thread turned to it.
  if (stream.metered && stream.marks.empty()) {
    services_.sharing->DelayMark(stream.busy_tally.engine, *stream.metered, job->began_ns);
  }
  stream.busy_tally.since_ns = std::max(stream.busy_tally.since_ns, job->began_ns);
  streams_.OnSubmitted(stream, weight);
}

void Launches::FinishChains(Stream& stream) {
  while (!stream.chains.empty() && stream.chains.front().ticket <= stream.completed) {
    Chains::Done(*stream.chains.front().chain);
    stream.chains.pop_front();
  }
}

}  // namespace gpuloom::executor
