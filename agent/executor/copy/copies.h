// SPDX-License-Identifier: Apache-2.0
// The part of a session for copies and fills in streams. Ring thread only. The parts that it points to are made before
// it and outlive it.
//
// A payload belongs to its command until it is submitted. What is staged of it then belongs to the stream, in the
// executor's memory (staging.h), until FreeStaged; where that has no room, CUDA copies the payload itself.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {

class Arrays;
class DeviceMemory;

class Copies final : public Part {
 public:
  Copies(SessionPort* port, const DeviceMemory* device_memory, const Arrays* arrays,
         HostCopies* host_copies)
      : Part(port), device_memory_(device_memory), arrays_(arrays), host_copies_(host_copies) {}

  void On(wire::Tag<wire::Copy>, const wire::Copy::Request&, const wire::Record&);
  void On(wire::Tag<wire::CopyInline>, const wire::CopyInline::Request&, const wire::Record&);
  void On(wire::Tag<wire::Fill>, const wire::Fill::Request&, const wire::Record&);
  void On(wire::Tag<wire::CopyBlock>, const wire::CopyBlock::Request&, const wire::Record&);
  void On(wire::Tag<wire::FillBlock>, const wire::FillBlock::Request&, const wire::Record&);

  // Returns true if there is room for a pinned copy of `payload_bytes` for the stream's next command.
  bool HasRoom(const Stream& stream, size_t payload_bytes) const;
  // Submits to CUDA. Does not use the payload after it returns: it is either copied or already read.
  CUresult SubmitCopyInline(Stream& stream, const StreamCommand& command, uint64_t destination);
  // Frees the staged payloads of the stream's completed commands.
  void FreeStaged(Stream& stream);

 private:
  // From pinned memory to pinned memory, in stream order.
  void EnqueueHostCopy(Stream& stream, wire::Ticket ticket, const HostBlock& block);
  // Returns false if refused. `judged` is filled for arrays only.
  bool JudgeCopyEnd(const wire::GraphCopyEnd& end, const wire::GraphCopy& copy, CopyEnd* judged);

  const DeviceMemory* const device_memory_;
  const Arrays* const arrays_;
  HostCopies* const host_copies_;
  uint64_t staged_bytes_ = 0;
};

}  // namespace gpuloom::executor
