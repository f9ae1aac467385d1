#include "agent/executor/quiet.h"

#include <algorithm>
#include <chrono>

#include "agent/executor/log.h"

namespace gpuloom::executor {
namespace {

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

void Quiet::Need(const void* owner, std::function<void()> work, std::function<void()> done) {
  needed_.push_back({owner, std::move(work), std::move(done)});
}

uint32_t Quiet::Drop(const void* owner) {
  return static_cast<uint32_t>(
      std::erase_if(needed_, [&](const Piece& piece) { return piece.owner == owner; }));
}

void Quiet::Close() {
  closed_ = true;
  std::deque<Piece> pieces;
  pieces.swap(needed_);
  pieces.clear();  // may bury, which is refused now
  pieces.swap(buried_);
}

void Quiet::Bury(std::function<void()> work, std::function<void()> done) {
  if (closed_) return;
  buried_.push_back({nullptr, std::move(work), std::move(done)});
}

void Quiet::HurryBuried() {
  for (Piece& piece : buried_) needed_.push_back(std::move(piece));
  buried_.clear();
}

// Opens and ends the moment in which submissions are held back.
void Quiet::LookAtHold(uint64_t now_ns) {
  if (held_since_ns_ == 0) {
    if (needed_.empty() || now_ns < pause_until_ns_ ||
        now_ns - needed_.front().since_ns < kPatienceNs) {
      return;
    }
    held_since_ns_ = now_ns;
    served_ = false;
    linger_until_ns_ = 0;
    return;
  }
  if (running_) return;
  const uint64_t held_ns = now_ns - held_since_ns_;
  const bool nobody_waits = needed_.empty() && now_ns >= linger_until_ns_;
  if (!nobody_waits && !(served_ && held_ns >= kLongestHoldNs)) return;
  held_since_ns_ = 0;
  pause_until_ns_ = now_ns + std::min(held_ns, kLongestPauseNs);
}

bool Quiet::Tick(uint64_t now_ns, bool at_device, uint64_t idle_ns) {
  if (ended_) {
    ended_ = false;
    served_ = true;
    linger_until_ns_ = now_ns + kLingerNs;
  }
  // The new ones are the last.
  for (auto piece = needed_.rbegin(); piece != needed_.rend() && piece->since_ns == 0; ++piece) {
    piece->since_ns = now_ns;
  }
  LookAtHold(now_ns);
  if (running_ || at_device) return false;
  if (!needed_.empty()) {
    // After a long moment the others' work goes first.
    if (held_since_ns_ != 0 || now_ns >= pause_until_ns_) Begin(&needed_, now_ns);
  } else if (!buried_.empty() && idle_ns >= kQuietNs) {
    Begin(&buried_, now_ns);
  }
  return running_;
}

void Quiet::Begin(std::deque<Piece>* pieces, uint64_t now_ns) {
  running_ = true;
  Piece piece = std::move(pieces->front());
  pieces->pop_front();
  const uint64_t waited_ns = piece.since_ns == 0 ? 0 : now_ns - piece.since_ns;
  const auto begun = std::chrono::steady_clock::now();
  pool_->Post(std::move(piece.work), [this, waited_ns, begun, done = std::move(piece.done)] {
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
    Log(LogLevel::kDebug, "quiet: waited %.2f ms, took %.2f ms", Milliseconds(waited_ns),
        Milliseconds(static_cast<uint64_t>(took.count())));
    running_ = false;
    ended_ = true;
    if (done) done();
  });
}

}  // namespace gpuloom::executor
