// SPDX-License-Identifier: Apache-2.0
#include "shim/nvml/node.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <new>

#include "proto/channel/socket.h"
#include "shim/process/clock.h"
#include "shim/session/door.h"

namespace gpuloom::nvml {

constinit Node node;

namespace {

// The scheduler answers in less than a millisecond; a machine that swaps is given more.
constexpr time_t kAnswerTimeoutSeconds = 5;
// Several times today's, for the fields of versions to come.
constexpr size_t kMaxAnswerBytes = 16 << 10;
static_assert(sizeof(wire::QueryAnswer) * 4 <= kMaxAnswerBytes);

// A handle is the address of this byte, so that no other value is taken for the device.
constexpr char kOnlyDevice = 0;

}  // namespace

DeviceHandle OnlyDevice() { return reinterpret_cast<DeviceHandle>(&kOnlyDevice); }

Return CheckDevice(DeviceHandle device) {
  if (!node.initialized()) return kUninitialized;
  return device == OnlyDevice() ? kSuccess : kInvalidArgument;
}

// A thread that is not in the child may have held the lock, and been writing what it guards.
void Node::OnForkedChild() {
  ::new (&node.lock_) Lock;
  node.last_valid_ = false;
}

Return Node::Init() {
  Holding holding(&lock_);
  if (!fork_handled_) {
    if (pthread_atfork(nullptr, nullptr, &Node::OnForkedChild) != 0) return kUnknown;
    fork_handled_ = true;
  }
  // The first of a series, also after nvmlShutdown: the quota may have changed, and the scheduler
  // may have gone. What never changes is kept from the very first time, for callers hold pointers
  // into it.
  if (init_count_.load(std::memory_order_relaxed) == 0) {
    ReadLogLevel();
    wire::QueryAnswer answer;
    if (const Return result = Ask(&answer); result != kSuccess) return result;
    if (!known_) first_ = answer;
    known_ = true;
    last_ = answer;
    last_valid_ = true;
    credit_ns_ = kBurst * kTurnNs;
    last_query_ns_ = NowNs();
  }
  init_count_.fetch_add(1, std::memory_order_release);
  return kSuccess;
}

Return Node::Shutdown() {
  Holding holding(&lock_);
  const uint32_t count = init_count_.load(std::memory_order_relaxed);
  if (count == 0) return kUninitialized;
  init_count_.store(count - 1, std::memory_order_release);
  return kSuccess;
}

// A bucket of credit, in time: it fills as time passes, to at most kBurst turns, and a fresh answer
// takes one. The lock is held while the scheduler is asked: one question at a time.
Return Node::Look(wire::QueryAnswer* answer) {
  Holding holding(&lock_);
  const int64_t now_ns = NowNs();
  credit_ns_ += now_ns - last_query_ns_;
  if (credit_ns_ > kBurst * kTurnNs) credit_ns_ = kBurst * kTurnNs;
  last_query_ns_ = now_ns;
  if (credit_ns_ < kTurnNs && last_valid_) {
    *answer = last_;
    return kSuccess;
  }
  // A question without an answer to fall back on is asked on credit, but runs up no debt.
  credit_ns_ = credit_ns_ < kTurnNs ? 0 : credit_ns_ - kTurnNs;
  const Return result = Ask(&last_);
  last_valid_ = result == kSuccess;
  if (last_valid_) *answer = last_;
  // It was there when the library was initialised.
  return result == kDriverNotLoaded ? kGpuIsLost : result;
}

// One question on a connection of its own: it needs no session, holds no place at the scheduler,
// and survives a scheduler that is replaced.
Return Node::Ask(wire::QueryAnswer* answer) {
  char path[kDoorPathBytes];
  const channel::UniqueFd connection = ConnectToScheduler(&failures_, kAnswerTimeoutSeconds, path);
  if (!connection.valid()) return kDriverNotLoaded;
  const wire::Hello query = MakeHello(wire::kQueryMagic);
  alignas(wire::QueryAnswer) uint8_t said[kMaxAnswerBytes];
  ptrdiff_t size = -1;
  if (channel::SendMessage(connection.get(), &query, sizeof(query))) {
    size = channel::ReceiveMessage(connection.get(), said, sizeof(said));
  }
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    failures_.Add("the scheduler behind %s did not answer", path);
    return kTimeout;
  }
  if (size >= static_cast<ptrdiff_t>(sizeof(*answer))) memcpy(answer, said, sizeof(*answer));
  if (size < static_cast<ptrdiff_t>(sizeof(*answer)) || answer->magic != wire::kQueryMagic) {
    failures_.Add("the scheduler behind %s answers no questions: it is older than this library",
                  path);
    return kVersionMismatch;
  }
  answer->message[sizeof(answer->message) - 1] = '\0';
  answer->device.name[sizeof(answer->device.name) - 1] = '\0';
  answer->driver_text[sizeof(answer->driver_text) - 1] = '\0';
  // The answer is trusted; a bound costs nothing where a mistake would read beyond the list.
  if (answer->process_count > wire::kMaxProcessUses) answer->process_count = wire::kMaxProcessUses;
  switch (answer->admission) {
    case wire::Admission::kAccepted:
      return kSuccess;
    case wire::Admission::kWrongVersion:
      failures_.Add("versions do not match: %s", answer->message);
      return kVersionMismatch;
    case wire::Admission::kRefused:
    case wire::Admission::kDeviceLost:
      break;
  }
  failures_.Add("the scheduler refused this process: %s", answer->message);
  return kNoPermission;
}

}  // namespace gpuloom::nvml
