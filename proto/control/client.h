// SPDX-License-Identifier: Apache-2.0
// The client end of a scheduler's control socket: for the agent's supervisor and for `gpuloom run`.
// Owned by one thread. Every call waits for its answer, at most the timeout given to Connect; false
// comes with a message that names the socket and the scheduler's answer.
//
//   Client client;
//   if (!client.Connect("/var/lib/gpuloom/gpu0", Client::kDefaultTimeout, &error)) ...
//   client.AddAllocation(...); client.BindAllocation(...);
//
// After a failure check connected(): false means the connection is gone (reconnect and repeat
// everything), true that the scheduler refused this one request.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "proto/control/connection.h"

namespace gpuloom::control {

class Client {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout{5000};

  // Connects to <state_dir>/control.sock and exchanges versions. With a scheduler of an older
  // minor, speaks that version (protocol_version.h).
  [[nodiscard]] bool Connect(const std::string& state_dir, std::chrono::milliseconds timeout,
                             std::string* error);
  void Close() { connection_.Close(); }
  bool connected() const { return connection_.valid(); }
  // After a failed Connect: no process listens there.
  bool not_listening() const { return not_listening_; }
  // After a failed Connect: a scheduler answered and refused us (another major). Retrying will not
  // help.
  bool refused() const { return refused_; }
  // Readable or hung up means that the scheduler is gone: it never sends unasked.
  int fd() const { return connection_.fd(); }

  // After Connect. Schedulers before 3.2 know nothing of shares of GPU time, suspending, and waiting for memory.
  bool scheduler_speaks_3_2() const { return connection_.peer_minor() >= 2; }
  // Those before 3.3 know nothing of DescribeGpu and count less.
  bool scheduler_speaks_3_3() const { return connection_.peer_minor() >= 3; }
  // Those before 3.4 know nothing of traces, limits for kernels and partitions.
  bool scheduler_speaks_3_4() const { return connection_.peer_minor() >= 4; }

  // Those before 3.6 know nothing of tenants' own traces.
  bool scheduler_speaks_3_6() const { return connection_.peer_minor() >= 6; }
  // Those before 3.7 know nothing of rescueAfter.
  bool scheduler_speaks_3_7() const { return connection_.peer_minor() >= 7; }
  // Those before 3.8 do not say which changes of smPercent and smReserved are pending.
  bool scheduler_speaks_3_8() const { return connection_.peer_minor() >= 8; }

  // The GPU's memory; known after Connect.
  uint64_t device_memory_bytes() const { return device_memory_bytes_; }
  // CUDA's number, 12020 for 12.2; 0 from schedulers before control 3.5.
  uint32_t driver_version() const { return driver_version_; }

  [[nodiscard]] bool AddAllocation(const control::AddAllocation& message, std::string* error) {
    return Ask(message, error);
  }
  [[nodiscard]] bool BindAllocation(const control::BindAllocation& message, std::string* error) {
    return Ask(message, error);
  }
  [[nodiscard]] bool PrepareExecutor(const std::string& name, std::string* error) {
    control::PrepareExecutor message{};
    SetText(message.name, name.c_str());
    return Ask(message, error);
  }
  // Schedulers before 3.2 refuse it.
  [[nodiscard]] bool SuspendAllocation(const std::string& name, bool suspend, std::string* error);
  [[nodiscard]] bool RemoveAllocation(const std::string& name, std::string* error);
  [[nodiscard]] bool ListAllocations(std::vector<AllocationState>* allocations, std::string* error);
  // Schedulers before 3.3 refuse it.
  [[nodiscard]] bool DescribeGpu(GpuState* gpu, std::vector<DomainState>* domains,
                                 std::string* error);
  // Schedulers before 3.4 refuse it. Returns when all executors record.
  [[nodiscard]] bool BeginTrace(uint32_t limit_ms, std::string* error);
  // Ends the trace that this client has begun. The content of the regions, which executors wrote, is untrusted.
  struct Part {
    TracePart part;
    channel::UniqueFd region;  // read-only; trace_region.h
  };
  struct Trace {
    std::vector<Part> parts;
    std::vector<TraceSession> sessions;
    std::string lack;  // what is missing; empty: nothing
  };
  [[nodiscard]] bool EndTrace(Trace* trace, std::string* error);

 private:
  using Clock = std::chrono::steady_clock;
  // Takes what precedes the Answer; returns false if it is not that.
  using TakePart = std::function<bool(Incoming&)>;

  template <Message M>
  bool Ask(const M& message, std::string* error) {
    Answer answer;
    return Ask(message, &answer, nullptr, error);
  }
  template <Message M>
  bool Ask(const M& message, Answer* answer, const TakePart& take, std::string* error,
           size_t descriptors = 0) {
    deadline_ = Clock::now() + timeout_;
    return Exchange(message, answer, take, error, descriptors);
  }
  // By the deadline that there is already.
  template <Message M>
  bool Exchange(const M& message, Answer* answer, const TakePart& take, std::string* error,
                size_t descriptors = 0) {
    const uint32_t request = ++last_request_;
    if (!connection_.Send(request, message)) return Lost("send to", error);
    return ReceiveAnswer(request, answer, take, descriptors, error);
  }
  // *answer is the last answer, even if it is a refusal. `descriptors`: the most that a message may carry.
  bool ReceiveAnswer(uint32_t request, Answer* answer, const TakePart& take, size_t descriptors,
                     std::string* error);
  bool WaitForMessage(bool is_first) const;
  bool ExchangeVersions(std::string* error);
  bool Lost(const char* what, std::string* error);

  Connection connection_;
  std::string path_;
  std::chrono::milliseconds timeout_{};  // of each call
  Clock::time_point deadline_;           // of this one
  uint32_t last_request_ = 0;
  uint64_t device_memory_bytes_ = 0;
  uint32_t driver_version_ = 0;
  bool not_listening_ = false;
  bool refused_ = false;
};

}  // namespace gpuloom::control
