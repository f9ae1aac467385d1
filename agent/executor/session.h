// One tenant process on this executor: its ring, its objects, its memory, its streams.
//
// Made by the loop when the scheduler says AddSession; ring thread only. Whatever a tenant's bytes say is
// judged in the On handlers (one file a noun); what breaks the protocol ends this session alone, with
// its first reason. What CUDA would have answered is a reply, or an asynchronous error.
//
// Life: kServing → End → kEnding (what CUDA has runs out, memory that is on its way arrives) → memory
// is returned → kEnded. kStuck: its work did not drain in time; the scheduler ends the process. Nobody
// waits for what takes long but is not at the device, such as a compilation: it goes on by itself, its
// results are dropped, and the loop deletes the session when it is done.
#pragma once

#include <atomic>
#include <bitset>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/executor/chain.h"
#include "agent/executor/chores.h"
#include "agent/executor/completion_words.h"
#include "agent/executor/context_memory.h"
#include "agent/executor/device.h"
#include "agent/executor/device_charge.h"
#include "agent/executor/graph.h"
#include "agent/executor/host_memory.h"
#include "agent/executor/id_table.h"
#include "agent/executor/internal_stream.h"
#include "agent/executor/library_cache.h"
#include "agent/executor/log.h"
#include "agent/executor/physical_memory.h"
#include "agent/executor/place.h"
#include "agent/executor/printer.h"
#include "agent/executor/quiet.h"
#include "agent/executor/scheduler_link.h"
#include "agent/executor/session_objects.h"
#include "agent/executor/session_port.h"
#include "agent/executor/staging.h"
#include "agent/executor/stand_in.h"
#include "agent/executor/stream_set.h"
#include "agent/executor/submitters.h"
#include "agent/executor/tenant.h"
#include "agent/executor/text_sender.h"
#include "agent/executor/work_pool.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/ring_reader.h"

namespace gpuloom::executor {

class Session final : private SessionPort, private StreamSink {
 public:
  // nullptr with a message. Takes kSessionFds descriptors.
  static std::unique_ptr<Session> Make(const Place& place, const control::AddSession& order,
                                       channel::UniqueFd* fds, std::string* error);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  using SessionPort::id;
  using SessionPort::label;
  using SessionPort::State;
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
  // Host functions of graphs, while the ring thread is in the driver (stand_in.h).
  void ServeGraphCalls();
  // A chunk of this session has been launched.
  void OnHanded(SubmitJobPtr job);
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
  bool HasText() const { return !text_.empty(); }
  // Tells the scheduler how many kernels there were, when there were more.
  void SendCounters();
  bool HasCounters() const { return kernels_told_ != kernels_launched_; }
  // As DeviceMemory's.
  void GiveBackOld(uint64_t now_ns);
  bool HasKept() const;
  void Reclaim(uint64_t reclaim_id);

  State state() const { return state_; }
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

  // The handlers, in the order of proto/wire/commands.h.
  void On(wire::Tag<wire::Launch>, const wire::Launch::Request&, const wire::Record&);
  void On(wire::Tag<wire::StreamCreate>, const wire::StreamCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::StreamDestroy>, const wire::StreamDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::LaunchEx>, const wire::LaunchEx::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphInstantiate>, const wire::GraphInstantiate::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::GraphUpdate>, const wire::GraphUpdate::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphUpload>, const wire::GraphUpload::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphLaunch>, const wire::GraphLaunch::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphDestroy>, const wire::GraphDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::ConditionCreate>, const wire::ConditionCreate::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::ConditionsDrop>, const wire::ConditionsDrop::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::StreamMark>, const wire::StreamMark::Request&, const wire::Record&);

 private:
  struct GraphEntry {
    GraphRef graph;  // null while it is made
  };
  struct ReservationEntry {
    ReservationRef reservation;
  };
  // It waits for the end of the Graph that was made with its reservation before.
  struct GraphToMake {
    Asker asker;
    wire::GraphInstantiate::Request request;
    PlanRef plan;
  };
  struct Fence {
    uint64_t ticket;
    std::function<void()> action;
  };

  Session(const Place& place, const control::AddSession& order, channel::Mapping commands,
          channel::Mapping completions, channel::UniqueFd doorbell);

  // session.cc
  bool MayRead() const;
  void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) override;
  bool RunFences(Slice* slice);
  void EndFor(wire::Fatal reason) override;

  // session_end.cc
  bool GoOnEnding();
  void ReturnEverything();
  void SendEnded(bool drained);

  // submit.cc
  void Submit(Stream& stream, StreamCommand& command) override;
  bool HasRoom(const StreamCommand& command) const override;
  bool TextTaken(Stream& stream, const PointRef& point);
  CUresult MakeStream(Stream& stream);
  void GiveStream(const Stream& stream);
  CUresult SubmitWork(Stream& stream, StreamCommand& command);
  void WaitFor(Stream& stream, const Dependency& dependency) override;
  // With `tell` the tenant sees the mark reached before we do.
  void AddMark(Stream& stream, PointRef point, bool tell = false);
  bool MayTell(const Stream& stream) const;
  bool AddMarks();
  bool PollStreams() override;
  // Takes the stream's marks that are done. True when there was one.
  bool TakeDone(Stream& stream);

  // chunk.cc
  bool MayCollect(Kernel* kernel, const wire::Launch::Request& request) const;
  void SubmitChunk(Stream& stream, StreamCommand& command);
  void SubmitOneByOne(Stream& stream, const Chunk& chunk);
  void AfterChunk(ChunkPtr chunk);
  void FinishChains(Stream& stream);

  // launch.cc
  CUresult SubmitLaunchEx(const LaunchExWork& launch, std::span<const uint8_t> params,
                          CUstream stream);

  // graph_judge.cc
  CUresult JudgeGraphNode(GraphPlan* plan, uint32_t entry);
  CUresult JudgeGraphKernel(GraphPlan* plan, uint32_t entry);
  CUresult JudgeGraphOperations(const GraphPlan& plan, const wire::GraphNode& node) const;

  // condition.cc
  CUresult JudgeConditional(GraphPlan* plan, uint32_t entry);
  // False: it waits, or the session ends.
  bool TakesReservation(Asker asker, const wire::GraphInstantiate::Request& request,
                        const PlanRef& plan);
  void MakeWaitingGraphs();

  // graph.cc
  struct GraphBlock;
  bool FindGraphBlock(wire::HostPtr address, uint64_t size_bytes, const wire::Record& record,
                      GraphPlan* plan, GraphBlock* block);  // refuses when it is not in the arena
  // Judges so many entries more; true when the plan is judged.
  bool JudgeGraph(GraphPlan* plan, uint32_t entries);
  void MakeGraph(Asker asker, const wire::GraphInstantiate::Request& request, const PlanRef& plan);
  Graph* FindGraph(wire::GraphId id_untrusted);  // refuses when there is none
  void JudgeUpdate(const GraphRef& graph, wire::Ticket ticket);
  void TryUpdate(const GraphRef& graph);
  void FinishUpdate(Graph& graph);
  bool MayLaunchGraph(const GraphWork& work, wire::Ticket ticket) const;
  CUresult SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work);
  void FinishGraphs(Stream& stream);
  bool PollGraphCalls();
  void LetGraphsGo();
  bool GraphsLetGo();  // nothing of LetGraphsGo's is at CUDA

  channel::UniqueFd doorbell_;
  TextSender text_{&writer_};
  bool held_ = false;          // nothing may be handed to CUDA now
  uint32_t jobs_out_ = 0;      // chunks that other threads launch
  bool marked_piece_ = false;  // at CUDA since the last look at what is done
  uint64_t deadline_ns_ = 0;
  uint64_t kernels_told_ = 0;
  bool ring_empty_ = true;  // when it was read last
  static constexpr uint64_t kAtWorkNs = 1'000'000;
  uint64_t last_read_ns_ = 0;

  struct DoneMark {
    uint64_t order;
    wire::StreamId stream;
    wire::Ticket ticket;
  };

  StreamSet stream_set_;              // the port's streams_
  std::vector<DoneMark> done_marks_;  // of PollStreams
  std::deque<Fence> fences_;
  std::shared_ptr<uint64_t> graph_nodes_ = std::make_shared<uint64_t>(0);
  IdTable<wire::GraphId, GraphEntry, wire::kMaxGraphs> graphs_;
  std::shared_ptr<uint64_t> conditions_ = std::make_shared<uint64_t>(0);
  IdTable<wire::ReservationId, ReservationEntry, wire::kMaxReservations> reservations_;
  std::vector<GraphToMake> graphs_to_make_;
  GraphWaits graph_waits_;

  CompletionWords words_;
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gpuloom::executor
