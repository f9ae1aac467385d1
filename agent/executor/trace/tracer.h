// SPDX-License-Identifier: Apache-2.0
// This executor's part of a trace (docs/tracing.md): has CUPTI record it (activity.h) or, where
// CUPTI is not available, records what the executor itself sees: the marks that the sessions'
// streams reach.
//
// While there is no trace it costs a look at a flag for each command, and an entry in a table for
// each CUDA stream that passes to another session. Owned by the loop; ring thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "agent/executor/stream/tally.h"
#include "agent/executor/trace/activity.h"
#include "agent/executor/trace/stream_owners.h"
#include "agent/executor/trace/trace_writer.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::executor {

class Device;

// CUPTI, if it was found.
struct TraceMeans {
  std::optional<Cupti> cupti;
  std::string why_not = "cupti: was not looked for";
};

class Tracer {
 public:
  struct Callbacks {
    // Sends the scheduler what all sessions have used until now.
    std::function<void()> counters;
    std::function<void(uint64_t trace_id, control::TraceStep step)> progress;
  };

  // `device` and `means` outlive it; `wake_fd` as in Activity.
  Tracer(Device* device, const TraceMeans* means, int wake_fd, Callbacks callbacks);

  bool has_cupti() const { return means_->cupti.has_value(); }
  // CUPTI's description, or why there is none.
  const std::string& cupti() const {
    return has_cupti() ? means_->cupti->description : means_->why_not;
  }

  struct Trace {
    uint64_t id;
    channel::UniqueFd region;
    uint64_t allocation_id = 0;  // only its records are wanted; 0: everybody's
    uint64_t most_records = wire::kTraceRecords;
    bool cupti = true;
  };

  // If a trace is in progress it ends first; of several that wait, only the last one is started.
  void Start(Trace trace);
  // Ignored unless it names the trace in progress or the one that waits.
  void Stop(uint64_t trace_id);
  // Returns true if something has happened. Call in each round.
  bool Poll();

  // From OnStreamAcquired to OnStreamReleased, the CUDA stream belongs to this session's stream.
  void OnStreamAcquired(CUstream cuda, const StreamOwner& owner);
  void OnStreamReleased(CUstream cuda) { streams_.erase(cuda); }

  // Whether commands are to be noted in their streams' tallies: any, or this allocation's.
  bool notes() const { return notes_; }
  bool NotesOf(uint64_t allocation_id) const {
    return notes_ && (trace_->allocation_id == 0 || trace_->allocation_id == allocation_id);
  }
  void Note(const StreamCommand& command, Tally* tally);
  // Call when a mark was reached, with everything that was submitted since the previous one.
  void Reached(const Tally& tally, uint64_t session_id, uint32_t stream, uint64_t begin_ns,
               uint64_t end_ns);

 private:
  enum class State { kNone, kAttaching, kRecords, kWriting };

  void Begin();
  // `why`: the reason for not using CUPTI.
  void BeginOwn(const std::string& why);
  void EndRecording();
  void EndTrace();
  uint32_t NameOf(CUkernel kernel);

  Device* const device_;
  const TraceMeans* const means_;
  const Callbacks callbacks_;
  std::unordered_map<CUstream, StreamOwner> streams_;  // in use
  StreamOwners owners_;
  TraceWriter writer_;
  std::unique_ptr<Activity> activity_;  // null: no CUPTI
  State state_ = State::kNone;
  bool notes_ = false;
  bool stop_requested_ = false;  // as soon as it records
  std::optional<Trace> trace_;
  std::optional<Trace> next_;
};

}  // namespace gpuloom::executor
