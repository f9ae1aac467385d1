// SPDX-License-Identifier: Apache-2.0
// Whether the loop, with nothing to do, spins, polls or sleeps, and for how long (docs/design/ring-thread.md).
#include <algorithm>

#include "agent/executor/session/loop.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/slice.h"
#include "agent/node/clock.h"
#include "proto/sync/cpu_pause.h"

namespace gpuloom::executor {
namespace {

// Polls of the rings for each full round.
constexpr int kSpinTurns = 64;
constexpr int kPollTurns = 8;  // as often as an unsuccessful query of the driver costs
// An allocation passes through four processes and threads while the tenant waits, so nobody sleeps
// for as long as that takes.
constexpr uint64_t kHandsNs = 3'000'000;
constexpr int64_t kShortestSleepNs = 50'000;    // about what going to sleep and waking costs
constexpr int64_t kLongestSleepNs = 1'000'000;  // with work at the device
constexpr int64_t kEndingSleepNs = 20'000'000;  // how often drain timeouts are checked

}  // namespace

bool Loop::Spin() {
  // Other threads are giving back chunks then.
  if (several_at_work_) {
    CpuPause();
    return false;
  }
  for (int turn = 0; turn < kSpinTurns; ++turn) {
    for (const auto& session : sessions_) {
      if (session->HasWork()) return false;
      if (!session->HasPollWaiter()) continue;
      // One query of the driver takes the time of that many turns.
      turn += kPollTurns;
      Slice slice(kShortestSliceNs);
      if (!session->Poll(NowNs(), &slice)) continue;
      session->Notify();
      return true;
    }
    CpuPause();
  }
  return false;
}

// Includes what belongs to no session: memory being cleared, words being read.
bool Loop::AnythingAtDevice() const {
  return !internal_.Idle() ||
         std::any_of(sessions_.begin(), sessions_.end(),
                     [](const std::unique_ptr<Session>& session) { return session->AtDevice(); });
}

// Not where several tenants' work must be told apart, nor where a completion lets something go.
uint64_t Loop::AwaitedSinceNs() const {
  if (sharing_.several() || !internal_.Idle()) return 0;
  uint64_t since_ns = 0;
  for (const auto& session : sessions_) {
    if (!session->AtDevice()) continue;
    if (!session->OnlyAwaitsDevice()) return 0;
    since_ns = std::max(since_ns, session->last_read_ns());
  }
  return since_ns;
}

bool Loop::AnyWordWatched() const {
  return std::any_of(
      sessions_.begin(), sessions_.end(),
      [](const std::unique_ptr<Session>& session) { return session->WatchesWords(); });
}

bool Loop::AnyWordOverdue() const {
  return std::any_of(
      sessions_.begin(), sessions_.end(),
      [](const std::unique_ptr<Session>& session) { return session->WordsOverdue(); });
}

// The shortest of what work, sharing, turns and what programs will send allow.
int64_t Loop::SleepNs(uint64_t idle_ns, uint64_t awaited_ns) const {
  if (!std::all_of(sessions_.begin(), sessions_.end(),
                   [](const auto& session) { return session->CheckedAllWaiting(); })) {
    return 0;
  }
  int64_t sleep_ns = SleepForWorkNs(idle_ns, awaited_ns);
  // Some streams of a session with very many have not been looked at.
  if (sharing_.limited() && (sleep_ns < 0 || sleep_ns > kShortestSleepNs) &&
      !std::all_of(sessions_.begin(), sessions_.end(),
                   [](const auto& session) { return session->KnowsReady(); })) {
    sleep_ns = kShortestSleepNs;
  }
  if (sleep_ns == 0) return 0;
  const uint64_t now = NowNs();
  const auto until = [&](int64_t until_ns) {
    sleep_ns = sleep_ns < 0 ? until_ns : std::min(sleep_ns, until_ns);
  };
  const uint64_t wake_at_ns = std::min(sharing_.wake_at_ns(), turns_.wake_at_ns());
  if (wake_at_ns != UINT64_MAX) {
    until(static_cast<int64_t>(wake_at_ns - std::min(wake_at_ns, now)));
  }
  // With few processors the program needs ours to think.
  static_assert(ThinkTimes::kShortestNs == kSpinNs);
  if (spin_ns_ == kSpinNs) {
    for (const auto& session : sessions_) {
      const int64_t expected_ns = session->UntilExpectedNs(now);
      if (expected_ns >= 0) until(expected_ns < kWakeNs ? 0 : expected_ns);
    }
  }
  return sleep_ns;
}

int64_t Loop::SleepForWorkNs(uint64_t idle_ns, uint64_t awaited_ns) const {
  // Words that are overdue come first: after a sleep they would be due again before others are
  // looked at.
  if (AnyWordOverdue()) return 0;
  // Only with many processors, which spin_ns_ tells.
  if ((scheduler_.waits() || memory_.busy()) && idle_ns < kHandsNs && spin_ns_ == kSpinNs) return 0;
  // Nothing announces that a mark is reached or a word written. Most of a wait as long as the last
  // ones is slept through. Sleeping in proportion to the time waited so far costs two percent of it
  // at most, and begins after 3.2 ms; who is awake at a wait's expected end loses less.
  if (AnythingAtDevice() || AnyWordWatched()) {
    const int64_t expected_ns = device_waits_.SleepNs(static_cast<int64_t>(awaited_ns));
    const int64_t share_ns = std::min(static_cast<int64_t>(idle_ns / 64), kLongestSleepNs);
    if (expected_ns != 0 || share_ns < kShortestSleepNs) return expected_ns;
    return device_waits_.ShortenNs(static_cast<int64_t>(awaited_ns), share_ns);
  }
  if (idle_ns < spin_ns_) return 0;
  if (!quiet_.Running()) {
    // Held sessions wait for this thread to end the hold.
    if (quiet_.Holding()) return kShortestSleepNs;
    if (!quiet_.empty()) return kLongestSleepNs;
  }
  // Nothing announces that who is first in line will not go (Printer::kPatienceNs).
  if (printer_.AnyWaits()) return kLongestSleepNs;
  for (const auto& session : sessions_) {
    // A tenant rings when it has taken the text; this is for one that died before it could.
    const Session::State state = session->state();
    const bool ends = state == Session::State::kEnding || state == Session::State::kReturning;
    if (ends || session->HasText()) return kEndingSleepNs;
    if (session->HasCounters() || session->HasKept()) return kCountersEveryNs;
  }
  return -1;
}

// If one session has got a command meanwhile, the announcements to the others are taken back.
bool Loop::AnnounceSleep() {
  for (const auto& session : sessions_) {
    if (session->AnnounceSleep()) continue;
    Awake();
    return false;
  }
  return true;
}

void Loop::Awake() {
  for (const auto& session : sessions_) session->Awake();
}

}  // namespace gpuloom::executor
