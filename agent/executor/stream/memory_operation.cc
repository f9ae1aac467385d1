// SPDX-License-Identifier: Apache-2.0
// Writes of words and waits for words, in streams and in nodes of graphs. Writes of a stream are
// given to CUDA. Waits are not: a wait on the GPU may never end, so a quiet moment (quiet.h) would
// never come if what ends the wait is held back for that same moment. A wait is a gate of ours that
// looks at the word: in host memory through the arena's descriptor, in device memory through a copy
// on our own stream.
#include <algorithm>
#include <utility>

#include "agent/executor/device/internal_stream.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/stream/memory_operations.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/cuda/wait_value.h"

namespace gpuloom::executor {
namespace {

// A waiting word is checked again after a sixty-fourth of the time it has been waited for, within
// these limits.
constexpr uint64_t kShortestPollNs = 1'000;
constexpr uint64_t kLongestPollNs = 1'000'000;
// How many checks of waiting words a round of the loop makes.
constexpr uint32_t kPollsPerRound = 16;
// The cost of a look at device memory, in looks at host memory: two calls to CUDA.
constexpr uint32_t kDevicePollCost = 8;
// The condition within an operation's flags; the other flag concerns writes by other devices.
constexpr uint32_t kConditions = 3;

bool IsWord(uint64_t address_untrusted, uint32_t word_bytes_untrusted) {
  return (word_bytes_untrusted == 4 || word_bytes_untrusted == 8) &&
         address_untrusted % word_bytes_untrusted == 0;
}

}  // namespace

// One wait for a word, of a stream or of a graph's node. Shared with the copy that reads the word,
// which may come back after the wait was dropped.
struct MemoryOperations::WordWatch {
  wire::StreamWaitValue::Request wait;
  bool in_host_memory;
  bool reading = false;    // a copy of the word is under way
  bool satisfied = false;  // at some look
  CUresult result = CUDA_SUCCESS;
  uint64_t since_ns = 0;
  uint64_t next_ns = 0;
  uint64_t turn = 0;  // see TakePollBudget

  bool Look(uint64_t word) {
    satisfied = wait.word_bytes == 8
                    ? WaitIsOver<uint64_t>(word, wait.value, wait.condition)
                    : WaitIsOver<uint32_t>(static_cast<uint32_t>(word),
                                           static_cast<uint32_t>(wait.value), wait.condition);
    return satisfied;
  }
};

struct OperationsRun {
  MemoryOperations::Operations operations;
  wire::StreamId stream;
  size_t next = 0;
  std::shared_ptr<MemoryOperations::WordWatch> watch;  // of the next one
  bool writing = false;                                // the same
  CUresult result = CUDA_SUCCESS;
  uint64_t turn = 0;  // see TakePollBudget
};

bool WaitsForValue(const wire::GraphMemoryOperation& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

OperationsRunRef MemoryOperations::Begin(Operations operations, wire::StreamId stream) {
  return std::make_shared<OperationsRun>(
      OperationsRun{std::move(operations), stream, 0, nullptr, false, CUDA_SUCCESS});
}

// Called again until it returns true: every operation may take several rounds, because a look is
// refused when the round has had enough of them, and a write or a look at device memory comes back
// through InternalStream.
bool MemoryOperations::GoOn(const OperationsRunRef& run) {
  for (; run->next < run->operations->size(); ++run->next) {
    if (run->writing) return false;
    if (run->result != CUDA_SUCCESS) {
      port_->ReportAsyncError(run->stream, run->result);
      return true;
    }
    const wire::GraphMemoryOperation& one = (*run->operations)[run->next];
    // Each operation is done before the next one begins, so there is nothing for a barrier to
    // order.
    if (one.operation == CU_STREAM_MEM_OP_BARRIER) continue;
    const bool wide = one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                      one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const uint32_t bytes = wide ? 8 : 4;
    if (run->watch == nullptr) {
      // It was mapped when the graph was made, and what is freed after the launch stays until the
      // launch is done.
      if (!device_memory_->IsStillThere(one.address, bytes, !WaitsForValue(one))) {
        port_->ReportAsyncError(run->stream, CUDA_ERROR_ILLEGAL_ADDRESS);
        return true;
      }
      if (!WaitsForValue(one)) {
        if (!TakePollBudget(kDevicePollCost, &run->turn)) return false;
        run->writing = true;
        ++outstanding_;
        const wire::StreamWriteValue::Request write{one.address, one.value, run->stream, bytes};
        services_.internal->Write(write, [this, run](CUresult result) {
          --outstanding_;
          run->writing = false;
          run->result = result;
          ++run->next;
        });
        return false;
      }
      run->watch = std::make_shared<WordWatch>(
          WordWatch{{one.address, one.value, run->stream, bytes, one.flags & kConditions, 0},
                    OwnsHost(one.address, bytes)});
    }
    PollWord(run->watch);
    if (run->watch->result != CUDA_SUCCESS) run->result = run->watch->result;
    if (!run->watch->satisfied && run->result == CUDA_SUCCESS) return false;
    run->watch.reset();
  }
  return true;
}

void MemoryOperations::BeginRound() {
  watching_words_ = words_overdue_ = false;
  poll_budget_ = kPollsPerRound;
  first_turn_ = std::exchange(next_first_turn_, UINT64_MAX);
}

void MemoryOperations::On(wire::Tag<wire::StreamWriteValue>,
                          const wire::StreamWriteValue::Request& request,
                          const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  if (!IsWord(request.address, request.word_bytes)) return Refuse(wire::Fatal::kBadArgument);
  if (!device_memory_->OwnsDevice(request.address, request.word_bytes) &&
      !OwnsHost(request.address, request.word_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = WriteValueWork{request};
  streams_.Enqueue(*stream, std::move(command));
}

void MemoryOperations::On(wire::Tag<wire::StreamWaitValue>,
                          const wire::StreamWaitValue::Request& request,
                          const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  if (!IsWord(request.address, request.word_bytes) ||
      request.condition > CU_STREAM_WAIT_VALUE_NOR) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  const bool in_host_memory = OwnsHost(request.address, request.word_bytes);
  if (!in_host_memory && !device_memory_->OwnsDevice(request.address, request.word_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  command.gate = std::make_shared<Gate>();
  auto watch = std::make_shared<WordWatch>(WordWatch{request, in_host_memory});
  command.gate->try_open = [this, watch](Gate* gate) {
    PollWord(watch);
    gate->open = watch->satisfied;
  };
  streams_.Enqueue(*stream, std::move(command));
}

// A round has kPollsPerRound units; a look at device memory costs eight. A requester that is
// refused keeps a number, and the lowest number of a round goes first in the next one, whatever
// units are left: otherwise the streams at the end of the list would never be looked at.
bool MemoryOperations::TakePollBudget(uint32_t cost, uint64_t* turn) {
  const bool has_room = cost == 1 || services_.internal->HasRoom();
  const bool is_first = *turn != 0 && *turn == first_turn_;
  if (!has_room || (poll_budget_ < cost && !is_first)) {
    // Without room in the driver's queue a further round of the loop at once would not help.
    words_overdue_ |= has_room;
    if (*turn == 0) *turn = ++last_turn_;
    next_first_turn_ = std::min(next_first_turn_, *turn);
    return false;
  }
  poll_budget_ -= std::min(poll_budget_, cost);
  *turn = 0;
  return true;
}

// Memory that a command names stays mapped until the command is done.
void MemoryOperations::PollWord(const std::shared_ptr<WordWatch>& watch) {
  if (watch->satisfied) return;
  watching_words_ = true;
  if (watch->reading || now_ns() < watch->next_ns) return;
  if (!TakePollBudget(watch->in_host_memory ? 1 : kDevicePollCost, &watch->turn)) return;
  if (watch->since_ns == 0) watch->since_ns = now_ns();
  watch->next_ns =
      now_ns() + std::clamp((now_ns() - watch->since_ns) / 64, kShortestPollNs, kLongestPollNs);
  const wire::StreamWaitValue::Request& wait = watch->wait;
  if (watch->in_host_memory) {
    uint64_t word = 0;
    // A word that cannot be read counts as not there yet: the wait then holds up its own session
    // only.
    if (host_->Read(wait.address, &word, wait.word_bytes)) watch->Look(word);
    return;
  }
  watch->reading = true;
  ++outstanding_;
  services_.internal->Read(wait.address, wait.word_bytes, services_.staging,
                           [this, watch](CUresult result, uint64_t word) {
                             --outstanding_;
                             watch->reading = false;
                             watch->result = result;
                             return result == CUDA_SUCCESS && watch->Look(word);
                           });
}

CUresult SubmitWriteValue(const Driver& cuda, const wire::StreamWriteValue::Request& write,
                          CUstream stream) {
  return write.word_bytes == 8 ? cuda.cuStreamWriteValue64_v2(stream, write.address, write.value, 0)
                               : cuda.cuStreamWriteValue32_v2(
                                     stream, write.address, static_cast<uint32_t>(write.value), 0);
}

}  // namespace gpuloom::executor
