// SPDX-License-Identifier: Apache-2.0
// One tenant process on this executor: its ring, its objects, its memory, its streams.
//
// Made by the loop when the scheduler says AddSession; ring thread only. Whatever a tenant's bytes say is
// judged by the parts of the session (session_parts.h); what breaks the protocol ends this session alone, with
// its first reason. What CUDA would have answered is a reply, or an asynchronous error.
//
// Life: kServing → End → kEnding (what CUDA has runs out, memory that is on its way arrives) → memory
// is returned → kEnded. kStuck: its work did not drain in time; the scheduler ends the process. Nobody
// waits for what takes long but is not at the device, such as a compilation: it goes on by itself, its
// results are dropped, and the loop deletes the session when it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/executor/device/quiet.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

class Session final : private SessionPort {
 public:
  // nullptr with a message. Takes kSessionFds descriptors.
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

  // Read would find a command.
  bool HasWork() const { return MayRead() && reader_.HasWork(); }
  // Takes a bounded number of commands from the ring. True when there was one.
  bool Read(uint64_t now_ns, Slice* slice);
  // Hands over commands that had to wait. True when one went.
  bool SubmitWaiting(uint64_t now_ns, Slice* slice);
  // Looks at what CUDA has done, and goes on with ending. True when something changed.
  bool Poll(uint64_t now_ns, Slice* slice);
  // It has sent commands a moment ago.
  bool AtWork(uint64_t now_ns) const { return now_ns - last_read_ns_ < kAtWorkNs; }
  // Whether somebody may wait for what Poll finds: not for what the device tells, nor for nothing.
  bool AnyoneWaitsForUs() const;
  // Wakes the tenant if it sleeps and something was published since.
  void Notify();
  void OnDoorbell(uint64_t now_ns);  // rang, or hung up
  void OnHangUp(uint64_t now_ns);

  // See RingReader. A session that has enough queued does not read and so does not keep the loop
  // awake.
  bool AnnounceSleep();
  void Awake() { reader_.Awake(); }

  // Stops serving. `reason` is kNone for an order of the scheduler's.
  void End(wire::Fatal reason, uint64_t now_ns);
  // `text` is what the driver says about it, for the tenant's standard error.
  void PublishFault(CUresult result, std::string_view text);
  // Printed text waits until the tenant takes it.
  bool HasText() const;
  // Tells the scheduler how many kernels there were, when there were more.
  void SendCounters();
  bool HasCounters() const { return kernels_told_ != kernels_launched_; }
  // As DeviceMemory's.
  void GiveBackOld(uint64_t now_ns);
  bool HasKept() const;
  void Reclaim(uint64_t reclaim_id);

  // It has ended, and nothing of it is with a worker any more.
  bool Gone() const;
  bool AtDevice() const { return streams_.AtDevice(); }
  Quiet::Party Party() const {
    return {owner(), tenant_.get(), AtDevice(), streams_.SlowestCommandNs()};
  }
  // True when it was held, and is not any more.
  bool SetHeld(bool held) { return std::exchange(held_, held) && !held; }
  // A stream's turn has come to wait for a word, which nobody tells us of.
  bool WatchesWords() const;
  // There were more words to look at than a round of the loop has room for.
  bool WordsOverdue() const;

 private:
  Session(const Services& services, const control::AddSession& order, SharedRegion commands,
          SharedRegion completions, channel::UniqueFd doorbell);

  // session.cc
  bool MayRead() const;
  void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) override;
  bool PollStreams() override;
  void EndFor(wire::Fatal reason) override;

  // session_end.cc
  bool HasRunOut();
  bool GoOnEnding();
  void TellWaits();
  void ReturnEverything();
  void SendEnded(bool drained);

  channel::UniqueFd doorbell_;
  bool held_ = false;  // nothing may be handed to CUDA now
  uint64_t deadline_ns_ = 0;
  uint32_t returning_waits_ = 0;  // told while it is being returned
  uint64_t kernels_told_ = 0;
  bool ring_empty_ = true;  // when it was read last
  static constexpr uint64_t kAtWorkNs = 1'000'000;
  uint64_t last_read_ns_ = 0;

  struct Parts;
  const std::unique_ptr<Parts> parts_;
  StreamSet stream_set_;  // the port's streams_
};

}  // namespace gpuloom::executor
