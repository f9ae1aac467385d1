// SPDX-License-Identifier: Apache-2.0
// One tenant process on this executor: its ring, its objects, its memory, its streams.
//
// Created by the loop on AddSession from the scheduler; ring thread only. The parts of the session
// validate everything a tenant sends (session_parts.h); a protocol violation ends this session alone,
// with its first reason. Errors that CUDA would have returned are replies, or asynchronous errors.
// Life: kServing → End → kEnding (work at CUDA finishes, memory that is on its way arrives) → memory is returned →
// kEnded. kStuck: its work did not drain in time; the scheduler ends the process. Slow work that is not at the device,
// such as a compilation, is not waited for: it goes on, its results are dropped, and the loop deletes the session after
// it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/arbiter/sm_division.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/session/think_times.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

class Slice;
struct HeadOfStream;

class Session final : private SessionPort {
 public:
  // Returns nullptr with a message on failure. Takes kSessionFds descriptors.
  static std::unique_ptr<Session> Make(const Services& services, const control::AddSession& order,
                                       channel::UniqueFd* fds, std::string* error);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  using SessionPort::id;
  using SessionPort::label;
  using SessionPort::State;
  using SessionPort::state;
  void LogBegin() const;
  int doorbell() const { return doorbell_.get(); }

  // Returns true if Read would find a command.
  bool HasWork() const { return MayRead() && reader_.HasWork(); }
  // Takes a limited number of commands from the ring. Returns true if there was one.
  bool Read(uint64_t now_ns, Slice* slice);
  // Submits commands that had to wait, as far as its share allows. Returns true if there was one.
  bool SubmitWaiting(uint64_t now_ns, Slice* slice);
  // Submits commands that an order allows (time_sharing.h).
  void SubmitOrdered(Slice* slice);
  // Polls CUDA for completed work, and continues ending. Returns true if something changed.
  bool Poll(uint64_t now_ns, Slice* slice);
  // Returns true if the tenant has sent commands very recently.
  bool AtWork(uint64_t now_ns) const { return now_ns - last_read_ns_ < kAtWorkNs; }
  // Returns true if it has work for the device, or had some very recently.
  bool WantsDevice(uint64_t now_ns) const {
    return OccupiesDevice() || (!held_ && (AtWork(now_ns) || HasWaiting()));
  }
  // Whether there are commands that are not submitted, whatever they wait for, or memory to clear.
  bool HasWaiting() const { return streams_.waiting_commands() != 0 || share_.clears_waiting != 0; }
  // Returns true if Ready has looked at all waiting commands.
  bool KnowsReady() const { return streams_.ScansAll(); }
  // Returns false if SubmitWaiting's slices have left some out since CheckAgain: the loop must not sleep before it has
  // come to them.
  bool CheckedAllWaiting() const { return state_ != State::kServing || streams_.CheckedAll(); }
  void CheckAgain() { streams_.CheckAgain(); }
  uint64_t last_read_ns() const { return last_read_ns_; }
  // For how long its program, of which nothing is here, is not expected to send a command (think_times.h). 0: it is expected
  // now; negative: nobody knows when.
  int64_t UntilExpectedNs(uint64_t now_ns) const;
  Share& share() { return share_; }
  const Share& share() const { return share_; }
  bool held() const { return held_; }
  // What could go to each engine at present, apart from the limits of its share.
  std::array<arbiter::Work, arbiter::kEngines> Ready();
  // Returns true if a caller may be waiting for Poll, rather than for the device to notify it (Point::device_notifies).
  bool HasPollWaiter() const;
  // Wakes the tenant if it sleeps and something was published since.
  void Notify();
  void OnDoorbell(uint64_t now_ns);  // the doorbell rang, or hung up
  void OnHangUp(uint64_t now_ns);

  // See RingReader. A session with enough queued commands is not read, and so does not keep the loop awake.
  bool AnnounceSleep();
  void Awake() { reader_.Awake(); }

  // Stops serving. `reason` is kNone if the scheduler ordered it.
  void End(wire::Fatal reason, uint64_t now_ns);
  // `text` is the driver's message about it, for the tenant's standard error.
  void PublishFault(CUresult result, std::string_view text);
  // Returns true if printed text is waiting for the tenant to take it.
  bool HasText() const;
  // Reports to the scheduler what has been done, if that has changed.
  void SendCounters();
  bool HasCounters() const { return progress_reported_ != Progress(); }
  // As in DeviceMemory.
  void GiveBackOld(uint64_t now_ns);
  bool HasKept() const;
  void Reclaim(uint64_t reclaim_id);

  // Returns true if the session has ended, and no worker has any of its work.
  bool HasLeft() const;
  uint64_t allocation_id() const { return order_.allocation_id; }
  // Whether any of its program's commands are there.
  bool AtDevice() const { return streams_.AtDevice(); }
  // Returns true if a thread of its program waits for what is at the device, and nothing of it waits here. As the tenant
  // says: one that lies waits longer.
  bool OnlyAwaitsDevice() const;
  // Includes memory that is being cleared for it.
  bool OccupiesDevice() const { return AtDevice() || share_.clears_at_device != 0; }
  // The same of work for the kernels' engine.
  bool HasKernelsAtDevice() const {
    return streams_.HasKernelsAtDevice() || share_.clears_at_device != 0;
  }
  // The multiprocessors that it may use, in the numbering of Partitions.
  arbiter::SmGroups Multiprocessors() const;
  // Adds what is at the heads of its streams and belongs to the kernels' engine, and memory that is being cleared.
  void AddHeads(std::vector<HeadOfStream>* heads) const;
  // A function's name as the session's own tables have it, because a lost driver may report nothing. Empty: unknown.
  std::string NameOf(CUkernel kernel) const;
  Quiet::Party Party() const {
    return {owner(), tenant_.get(), AtDevice(), streams_.SlowestCommandNs(),
            streams_.OldestAtDevice()};
  }
  // For a quiet moment. Returns true if the session was held and has ceased to be.
  bool SetHeld(bool held);
  // Adds or removes one of the scheduler's reasons to hold the session: nothing is submitted to CUDA while there is
  // any. Answers SessionHeld with `request` when nothing of the session is at the device.
  void Hold(control::HoldReason reason, bool hold, uint32_t request);
  // Returns true if a stream is waiting for a word whose change we have to poll for.
  bool WatchesWords() const;
  // Returns true if there were more words to poll than fit into one round of the loop.
  bool WordsOverdue() const;

 private:
  Session(const Services& services, const control::AddSession& order, SharedRegion commands,
          SharedRegion completions, channel::UniqueFd doorbell);

  // session.cc
  // Whether it is the program's turn to do something: nothing of it waits here or is at the device.
  bool Thinks() const;
  control::TimeUsage TimeUsed() const;
  uint64_t HeldNs(uint64_t now_ns) const;
  void NoteHeld(uint64_t now_ns);
  // Grows with everything that SendCounters reports.
  uint64_t Progress() const;
  void UpdateHeld();
  void SendHeld();
  // Moves to the multiprocessors that Partitions names. Held until they are ready and nothing of it is at the device.
  void FollowPartition();
  bool MayRead() const;
  void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) override;
  bool PollStreams() override;
  void EndFor(wire::Fatal reason) override;

  // session_end.cc
  bool HasRunOut();
  bool ContinueEnding();
  void SendWaits();
  void ReturnEverything();
  void SendEnded(bool drained);

  channel::UniqueFd doorbell_;
  // Nothing may be submitted to CUDA, because of a quiet moment or one of the scheduler's reasons.
  bool held_ = false;
  bool quiet_held_ = false;
  struct SchedulerHold {
    bool holds = false;
    bool acknowledged = false;  // SessionHeld has been sent
    uint32_t request = 0;
  };
  std::array<SchedulerHold, control::kHoldReasons> holds_;  // by reason
  bool moving_ = false;                                     // to other multiprocessors
  bool placed_ = false;                                     // it has had its first multiprocessors
  uint32_t partitions_known_ = 0;  // value of Partitions::changes() when it last looked
  bool waits_held_ = false;        // at held_noted_ns_ it had waiting commands, and was held
  uint64_t held_noted_ns_ = 0;
  uint64_t held_ns_ = 0;  // until held_noted_ns_
  uint64_t deadline_ns_ = 0;
  uint32_t returning_waits_ = 0;  // reported while memory is being returned
  uint64_t progress_reported_ = 0;
  bool ring_empty_ = true;  // as of the last read
  bool chunks_first_ = false;
  static constexpr uint64_t kAtWorkNs = 1'000'000;
  uint64_t last_read_ns_ = 0;
  ThinkTimes think_times_;
  uint64_t thinks_since_ns_ = 0;  // 0: it does not think, or has not sent anything yet

  struct Parts;
  const std::unique_ptr<Parts> parts_;
  StreamSet stream_set_;  // the port's streams_
};

}  // namespace gpuloom::executor
