// SPDX-License-Identifier: Apache-2.0
// The node as the shim's tests need it: a scheduler's door and an executor's ring thread over a
// temporary socket, with a map as memory. Speaks the real wire protocol; everything it receives can
// be inspected, held back and broken off. One tenant at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/channel/region.h"
#include "proto/channel/unique_fd.h"
#include "proto/sync/mutex.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/session.h"

namespace gpuloom {

class TestingNode {
 public:
  // One command as it arrived.
  struct Seen {
    std::string_view name;
    wire::Ticket ticket;
    std::vector<uint8_t> request;
    std::vector<uint8_t> payload;

    template <wire::Command C>
    typename C::Request As() const {
      typename C::Request out;
      std::memcpy(&out, request.data(), sizeof(out));
      return out;
    }
  };

  // Listens in a new directory, which GPULOOM_SOCKET_DIR names from now on.
  TestingNode();
  ~TestingNode();

  // What the next tenant is sent.
  wire::Welcome welcome() {
    const MutexLock lock(mutex_);
    return welcome_;
  }
  void set_welcome(const wire::Welcome& welcome) {
    const MutexLock lock(mutex_);
    welcome_ = welcome;
  }
  // For one more instance of the library: the previous one keeps its addresses.
  void TakeOtherAddresses();
  // An older scheduler's Welcome is shorter than ours, a newer one's longer.
  std::atomic<size_t> welcome_bytes{sizeof(wire::Welcome)};
  // What the last tenant sent.
  wire::Hello hello() {
    const MutexLock lock(mutex_);
    return hello_;
  }
  static constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
  static constexpr uint64_t kHostBytes = uint64_t{256} << 20;

  // What lies behind every token that a tenant imports.
  static constexpr uint64_t kImportedBytes = uint64_t{2} << 20;

  int connections() const { return connections_.load(); }
  const std::string& directory() const { return directory_; }

  // Commands so far, all or of one name.
  std::vector<Seen> seen(std::string_view name = {});
  size_t count(std::string_view name) { return seen(name).size(); }
  void WaitForCount(std::string_view name, size_t count);

  // Stops or resumes reading the ring; returns once that is so. While it is stopped the executor is awake.
  void PauseReading(bool pause);
  // Blocks until the tenant has filled the ring while it is not read.
  void WaitForFullRing();
  // Work is read but not reported as done, and nothing is unmapped; releasing the hold reports it.
  void HoldCompletions(bool hold);
  // Blocks until a thread of the tenant sleeps.
  void WaitForSleeper();
  void PublishFault(uint32_t code);
  void PublishAsyncError(uint32_t code);
  // What another process has recorded in shared events; until then waits for them get no answer.
  void PublishEventsDone();
  void PublishFatal(wire::Fatal fatal);
  void HangUpDoorbell();
  void HangUpConnection();

  // The result of LibraryLoad and LibraryCompile from now on, and what LibraryLoad says that managed variables take.
  void AnswerLoadWith(uint32_t result, std::string log, uint32_t managed_bytes = 0);
  // The library images that arrived.
  std::vector<std::vector<uint8_t>> images();

 private:
  class Ring;  // the executor's half

  void Serve();

  wire::Welcome welcome_ = {};
  wire::Hello hello_ = {};
  std::string directory_;
  channel::UniqueFd listener_;
  channel::UniqueFd stop_read_, stop_write_;
  std::atomic<int> connections_{0};
  Mutex mutex_;
  std::vector<channel::UniqueFd> tenants_;
  std::unique_ptr<Ring> ring_;
  std::thread thread_;
};

}  // namespace gpuloom
