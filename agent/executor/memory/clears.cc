// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/clears.h"

#include <algorithm>
#include <utility>

#include "agent/executor/device/internal_stream.h"
#include "agent/executor/session/long_kernels.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/stream/priority_band.h"

namespace gpuloom::executor {

void Clears::Add(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done) {
  if (!serving()) return done(CUDA_ERROR_OUT_OF_MEMORY);
  auto clear = std::make_shared<Clear>(Clear{std::move(done), address, size_bytes});
  if (size_bytes <= kLittleBytes && HasRoom()) return SubmitPiece(clear, size_bytes);
  waiting_.push_back(std::move(clear));
  ++share_.clears_waiting;
}

bool Clears::HasRoom() const {
  return services_.internal->HasRoomToClear(port_->Band().greatest, share_.clears_at_device);
}

bool Clears::Submit() {
  const Share::Room& room = share_.room(arbiter::Engine::kCompute);
  bool any = false;
  while (!waiting_.empty() && HasRoom()) {
    const ClearRef clear = waiting_.front();
    const uint64_t piece_bytes = NextPieceBytes(*clear);
    if (share_.limited && (!room.IsOpen(!at_device_.empty()) || !room.Fits(PredictNs(piece_bytes))))
      break;
    // Before it is submitted: Ready must not count it twice.
    if (piece_bytes == clear->left_bytes) {
      waiting_.pop_front();
      --share_.clears_waiting;
    }
    SubmitPiece(clear, piece_bytes);
    any = true;
  }
  return any;
}

// A session that is alone has nobody who waits for an end of it; and one whose kernel may wait for what its program does
// behind this allocation must have all of it (SubmitToIdleStreams), and not a piece now and then.
uint64_t Clears::NextPieceBytes(const Clear& clear) const {
  const Share::Room& room = share_.room(arbiter::Engine::kCompute);
  const bool whole = !share_.limited || (room.open && room.idle_streams);
  return whole ? clear.left_bytes : std::min(clear.left_bytes, kPieceBytes);
}

uint64_t Clears::PredictNs(uint64_t size_bytes) const {
  return services_.sharing->Predict(share_, KeyOfClear(size_bytes)).ns;
}

arbiter::Work Clears::Ready() const {
  if (waiting_.empty() || !HasRoom()) return {};
  return {1, PredictNs(NextPieceBytes(*waiting_.front()))};
}

void Clears::SubmitPiece(const ClearRef& clear, uint64_t size_bytes) {
  Tally tally;
  tally.since_ns = services_.sharing->now_ns();
  tally.Add(arbiter::Engine::kCompute);
  // Little ones go without an order, so the arbiter has none of them.
  if (share_.limited && share_.room(arbiter::Engine::kCompute).open) {
    const arbiter::LaunchKey key = KeyOfClear(size_bytes);
    const arbiter::Prediction prediction = services_.sharing->Predict(share_, key);
    tally.Add(key, prediction);
    share_.room(arbiter::Engine::kCompute).Add(prediction.ns);
  }
  const uint64_t address = std::exchange(clear->next, clear->next + size_bytes);
  clear->left_bytes -= size_bytes;
  ++clear->at_device;
  ++share_.clears_at_device;
  at_device_.push_back(tally);
  BeginOldest(0);
  services_.internal->Clear(address, size_bytes, port_->Band().greatest,
                            [this, clear](CUresult result) { OnPiece(clear, result); });
}

// The meter follows one piece at a time, as it does a stream's marks (marks.cc).
void Clears::BeginOldest(uint64_t since_ns) {
  if (metered_ || at_device_.empty()) return;
  metered_ = services_.sharing->BeginMark(&share_, at_device_.front(), since_ns);
  head_ns_ = std::max(since_ns, at_device_.front().since_ns);
}

void Clears::AddHead(std::vector<HeadOfStream>* heads) const {
  if (!metered_) return;
  HeadOfStream head;
  head.work = {share_.session, share_.allocation, *metered_, head_ns_,
               Share::LevelOf(port_->Band().greatest)};
  heads->push_back(head);
}

void Clears::OnPiece(const ClearRef& clear, CUresult result) {
  const uint64_t now = services_.sharing->now_ns();
  share_.ended_ns[Share::LevelOf(port_->Band().greatest)] += now - std::min(now, head_ns_);
  const uint64_t next_ns = at_device_.size() > 1 ? at_device_[1].since_ns : UINT64_MAX;
  services_.sharing->EndMark(&share_, /*stream=*/0, at_device_.front(),
                             *std::exchange(metered_, {}), next_ns, now);
  at_device_.pop_front();
  BeginOldest(now);
  --share_.clears_at_device;
  --clear->at_device;
  if (clear->result == CUDA_SUCCESS) clear->result = result;
  if (clear->at_device == 0 && clear->left_bytes == 0) clear->done(clear->result);
}

void Clears::Cancel() {
  share_.clears_waiting = 0;
  for (const ClearRef& clear : std::exchange(waiting_, {})) {
    clear->left_bytes = 0;
    clear->result = CUDA_ERROR_OUT_OF_MEMORY;
    if (clear->at_device == 0) clear->done(clear->result);
  }
}

}  // namespace gpuloom::executor
