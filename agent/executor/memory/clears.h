// SPDX-License-Identifier: Apache-2.0
// The part of a session for clearing: memory that the scheduler grants may hold another tenant's data, and is filled with
// zeros before the session's own tenant can reach it. To the device this is work like the tenant's own, and a tenant that
// allocates and frees without end would have the device beyond its share; so it is metered, and goes when a kernel of the
// session could, with the stream priority of its class. Only little of it goes at once. Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/tally.h"

namespace gpuloom::executor {

struct HeadOfStream;

class Clears final : public Part {
 public:
  // Takes some 10 µs, and the scheduler needs longer to grant it.
  static constexpr uint64_t kLittleBytes = 32u << 20;
  // While the device is shared, about what an order may take (arbiter::EngineLimits).
  static constexpr uint64_t kPieceBytes = 256u << 20;

  explicit Clears(SessionPort* port) : Part(port) {}

  // Fills whole granules with zeros. `done` is called exactly once: from within, or by Cancel, only with
  // CUDA_ERROR_OUT_OF_MEMORY, because the session does not serve any more.
  void Add(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done);
  // Submits as much as the session's share allows. Returns true if there was anything. Not while the session is held.
  bool Submit();
  // What could go at once if the session had no limits.
  arbiter::Work Ready() const;
  // Adds what is at the device, which keeps others' kernels waiting.
  void AddHead(std::vector<HeadOfStream>* heads) const;
  // The session does not serve any more: what is not at the device is not cleared.
  void Cancel();

 private:
  struct Clear {
    std::function<void(CUresult)> done;
    uint64_t next;  // the address of the next piece
    uint64_t left_bytes;
    uint32_t at_device = 0;  // pieces
    CUresult result = CUDA_SUCCESS;
  };
  using ClearRef = std::shared_ptr<Clear>;

  bool HasRoom() const;
  void SubmitPiece(const ClearRef& clear, uint64_t size_bytes);
  void OnPiece(const ClearRef& clear, CUresult result);
  void BeginOldest(uint64_t since_ns);
  uint64_t NextPieceBytes(const Clear& clear) const;
  uint64_t PredictNs(uint64_t size_bytes) const;

  std::deque<ClearRef> waiting_;  // with bytes left
  std::deque<Tally> at_device_;   // oldest first
  std::optional<uint64_t> metered_;
  uint64_t head_ns_ = 0;  // since when that is metered
};

}  // namespace gpuloom::executor
