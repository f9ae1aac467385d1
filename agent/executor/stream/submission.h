// SPDX-License-Identifier: Apache-2.0
// The part of a session between its streams and CUDA's: submission, waits between streams, marks,
// completion, and what waits for these. Only this part submits commands to CUDA. Ring thread only.
//
// The last of the parts: those that it calls are made before it and outlive it. Streams are the session's, CUDA's
// streams come from the device and return to it; actions that wait for earlier work may use any part.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "agent/executor/printing/text_sender.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/completion_words.h"
#include "agent/executor/stream/stream_set.h"
#include "agent/executor/stream/timed_launch.h"

namespace gpuloom::executor {

class Copies;
class Events;
class Graphs;
class Launches;
class Slice;
struct HeadOfStream;

class Submission final : public Part, public StreamSink {
 public:
  Submission(SessionPort* port, Copies* copies, Graphs* graphs, Launches* launches,
             const Events* events)
      : Part(port),
        copies_(copies),
        graphs_(graphs),
        launches_(launches),
        events_(events),
        text_(writer()),
        words_(services_.device, services_.quiet, completions()) {}

  void On(wire::Tag<wire::StreamCreate>, const wire::StreamCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::StreamDestroy>, const wire::StreamDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::StreamMark>, const wire::StreamMark::Request&, const wire::Record&);

  void Submit(Stream& stream, StreamCommand& command) override;
  bool HasRoom(const Stream& stream, const StreamCommand& command) const override;
  bool MaySubmit(const Stream& stream, const StreamCommand& command) const override;
  bool MaySubmit(const Stream& stream, const Chunk& chunk) const override;
  QueueNeed QueuesFor(const StreamCommand& command) const override;
  void WaitFor(Stream& stream, const Dependency& dependency) override;

  // Whether CUDA can be given work of the stream without making objects for which it waits (driver_objects.h).
  bool HasObjects(const Stream& stream, const StreamCommand& command) const;
  bool HasSpareStream(CUgreenCtx green, int priority) const;
  // Null for the primary context.
  CUgreenCtx GreenOf(const Stream& stream, CUcontext context) const;
  // Adds what is at the heads of streams and belongs to the kernels' engine.
  void AddHeads(std::vector<HeadOfStream>* heads) const;

  // What could go to each engine if the session had no limits.
  std::array<arbiter::Work, arbiter::kEngines> Ready();

  // The largest number of actions that may wait for earlier work.
  static constexpr size_t kMaxFences = 64u << 10;
  // Removes the session from the queue for the right to print; kernels that print wait for their turn (printing/printer.h).
  void LeavePrintQueue();
  // Called by the port.
  void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action);
  bool PollStreams();
  // Runs the actions whose turn has come. Returns true if there were any.
  bool RunFences(Slice* slice);
  size_t fences() const { return fences_.size(); }
  // Marks what has gone to CUDA after the last marks. Returns true if there was anything.
  bool AddMarks();
  // Returns true if a piece of a large copy has been marked since the last call.
  bool TakeMarkedPiece() { return std::exchange(marked_piece_, false); }
  // Passes printed text on to the tenant.
  bool PollText() { return text_.Poll(); }
  bool HasText() const { return !text_.empty(); }

  // When the session begins.
  void BeginWords() { words_.Begin(&memory_); }
  // At session end: drops one piece; returns true if that was the last.
  bool GiveStreams();
  // After GiveStreams: the device does not write words any more.
  void EndWords() { words_.End(); }

 private:
  struct Fence {
    uint64_t ticket;
    std::function<void()> action;
  };
  struct DoneMark {
    uint64_t order;
    wire::StreamId stream;
    wire::Ticket ticket;
  };
  bool TextTaken(Stream& stream, const PointRef& point);
  bool MayPrint(const Stream& stream, const StreamCommand& command) const;
  CUcontext ContextOf(const Stream& stream) const;
  CUresult NewStream(const Stream& stream, int priority, CUstream* made);
  CUresult MakeStream(Stream& stream);
  // Makes `stream` wait for everything that `former`, which is dropped, was made to wait for.
  void WaitForFormer(CUstream stream, CUstream former, CUgreenCtx former_green);
  void GiveStream(Stream& stream);
  bool WouldIdleATurn(const Stream& stream) const;
  template <typename F>
  bool Fits(const Stream& stream, arbiter::Engine engine, F key) const;
  // Adds a mark behind all that is at CUDA.
  void MarkSubmitted(Stream& stream, bool may_notify = false);
  void RecordMark(Stream& stream, Point* point, bool notify);
  bool MayTime(const Stream& stream) const;
  void BeginTiming(Stream& stream);
  void EndTiming(Stream& stream);
  void FinishGraphs(Stream& stream);
  void MarkBefore(Stream& stream, const StreamCommand& command);
  void Count(Stream& stream, const StreamCommand& command);
  // For the meter: the work has been there since `since_ns`, or since it was submitted.
  void BeginMark(Stream& stream, uint64_t since_ns);
  void BeginMeter(Stream& stream, const Tally& tally, uint64_t since_ns);
  bool KernelIsTimed(const Stream& stream) const;
  // Nothing of the stream is at the device or on its way there, and the command waits for nothing.
  static bool IsAlone(const Stream& stream, const StreamCommand& command);
  static bool IsLaunch(const StreamCommand& command);
  static uint64_t NextSinceNs(const Stream& stream);
  // For TimedLaunch. Returns true if the command is timed: its mark needs an event with timing.
  bool BeginTimed(const Stream& stream, StreamCommand* command);
  void LearnRoundTrip(const PointRef& reached);
  // Whether the work of that ticket waits for an event of another session.
  static bool WaitsForOthers(const Stream& stream, wire::Ticket ticket);
  void EndMarks(Stream& stream, const Tally& tally, uint32_t commands);
  CUresult SubmitWork(Stream& stream, StreamCommand& command, CUresult made);
  // With `notify` the device notifies the tenant when the mark is reached, before we know.
  void AddMark(Stream& stream, PointRef point, bool notify = false);
  bool MayNotify(const Stream& stream) const;
  bool RunsAhead(const Stream& stream) const;
  // Whether the device shall report `point`, of the stream's newest command.
  bool LetNotify(const Stream& stream, Point* point) const;
  // Removes the stream's completed marks. Returns true if there were any.
  bool TakeDone(Stream& stream);

  Copies* const copies_;
  Graphs* const graphs_;
  Launches* const launches_;
  const Events* const events_;
  TextSender text_;
  CompletionWords words_;
  TimedLaunch timed_;
  std::vector<DoneMark> done_marks_;  // used by PollStreams
  std::deque<Fence> fences_;
  bool marked_piece_ = false;  // at CUDA since the last check for completed work
};

}  // namespace gpuloom::executor
