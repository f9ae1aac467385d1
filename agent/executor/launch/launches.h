// SPDX-License-Identifier: Apache-2.0
// The part of a session for launches: of single kernels, and of several that go to CUDA together
// (chunk.h). Ring thread only, also for what submitters' threads have launched (submitters.h).
//
// A job on such a thread points to this part and to its stream, which stays busy until OnSubmitted; a session does not
// end while a stream is busy, so both are still there. `kernels` is made before this part and outlives it. What CUDA
// refuses is an asynchronous error of the stream.
#pragma once

#include <cstdint>
#include <span>

#include "agent/executor/launch/submitters.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {

class Kernels;
struct Kernel;

class Launches final : public Part {
 public:
  Launches(SessionPort* port, Kernels* kernels) : Part(port), kernels_(kernels) {}

  void On(wire::Tag<wire::Launch>, const wire::Launch::Request&, const wire::Record&);
  void On(wire::Tag<wire::LaunchEx>, const wire::LaunchEx::Request&, const wire::Record&);

  // Submits to CUDA.
  CUresult SubmitLaunch(const LaunchWork& launch, std::span<const uint8_t> params, CUstream stream);
  CUresult SubmitLaunchEx(const LaunchExWork& launch, std::span<const uint8_t> params,
                          CUstream stream);
  void SubmitChunk(Stream& stream, StreamCommand& command);
  // Returns true if there is room for another chunk on a submitter thread.
  bool HasRoom() const;
  // Call when another thread has launched a chunk of this session.
  void OnSubmitted(SubmitJobPtr job);
  // For the stream's commands that are done.
  void FinishChains(Stream& stream);

 private:
  bool MayCollect(Kernel* kernel, const wire::Launch::Request& request) const;
  void SubmitOneByOne(Stream& stream, const Chunk& chunk);
  void AfterChunk(ChunkPtr chunk);

  Kernels* const kernels_;
  uint32_t jobs_out_ = 0;  // chunks being launched by other threads
};

}  // namespace gpuloom::executor
