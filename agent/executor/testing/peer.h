// SPDX-License-Identifier: Apache-2.0
// The other two parties for tests of the executor, in the test's own process: a scheduler that
// grants memory, and tenants that write rings. The executor's loop runs on a separate thread.
// Tenant and executor share the process, so the arena is where the executor maps it, once a session
// is ready.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "agent/executor/testing/grants.h"
#include "agent/executor/testing/regions.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"
#include "proto/control/trace_messages.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Device;
class DriverOutput;
class Loop;
class TestingScheduler;
struct TraceMeans;

class TestingTenant : public TestingRegions {
 public:
  ~TestingTenant();

  // From now on commands wake no executor that sleeps: they lie in the ring until something else does.
  bool rings = true;

  // Writes a command; waits while the ring is full.
  template <wire::Command C>
  wire::Ticket Post(const typename C::Request& request, std::span<const uint8_t> payload = {},
                    uint16_t slot = wire::kNoReply) {
    wire::Ticket ticket{};
    while (!TryPost<C>(request, payload, slot, &ticket)) std::this_thread::yield();
    if (rings && writer.ExecutorSleeps()) channel::RingDoorbell(doorbell.get());
    return ticket;
  }

  // Returns CUDA's result; nullopt if no answer came in time or the session ended.
  template <wire::Command C>
  std::optional<CUresult> Call(const typename C::Request& request,
                               typename C::Reply* reply = nullptr,
                               std::span<const uint8_t> payload = {}, uint16_t slot = 0) {
    const wire::Ticket ticket = Post<C>(request, payload, slot);
    const wire::ReplySlot* answer = nullptr;
    if (!Wait([&] { return (answer = reader.FindReply(slot, ticket)) != nullptr; })) {
      return std::nullopt;
    }
    if constexpr (wire::kWireSize<typename C::Reply> != 0) {
      if (reply != nullptr) std::memcpy(reply, answer->reply, sizeof(*reply));
    }
    return static_cast<CUresult>(answer->result);
  }

  // Returns false if it does not become true in time, or the session ends meanwhile.
  template <typename F>
  bool Wait(F condition, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!condition()) {
      if (reader.fatal() != wire::Fatal::kNone || std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }
  // Returns true if it stays false while the executor reads this session's ring many times:
  // stepping instead of sleeping. The ring must not be blocked.
  template <typename F>
  bool Never(F condition) {
    constexpr int kRounds = 50;
    for (int i = 0; i < kRounds; ++i) {
      if (condition() || Call<wire::MemInfo>({}) != CUDA_SUCCESS) return false;
    }
    return !condition();
  }
  bool WaitDone(uint32_t stream, wire::Ticket ticket) {
    return Wait([&] { return reader.Done(wire::StreamId{stream}, ticket); });
  }
  bool WaitFatal(wire::Fatal fatal);

  // 0 on failure.
  uint64_t Alloc(uint64_t size_bytes);
  // Registers a part of the arena, so that it can be copied from and to.
  bool PinArena(uint64_t offset, uint64_t size_bytes);
  std::optional<CUresult> Free(uint64_t address);
  // Loads a library with one kernel under the given ids; `image` is copied into the arena.
  bool LoadKernel(uint32_t library, uint32_t kernel, std::string_view name, std::string_view image);
  std::optional<CUresult> LoadLibrary(uint32_t library, std::string_view image);
  wire::Ticket Launch(uint32_t stream, uint32_t kernel, std::span<const uint8_t> params);
  // Launches one thread with two parameters, which TestingDriver's kernels have.
  wire::Ticket LaunchPlain(uint32_t stream, uint32_t kernel);
  bool CreateStream(uint32_t stream, bool nonblocking);

  control::AddSession order{};
  control::SessionReady ready{};
};

class TestingScheduler {
 public:
  // Starts a device on `driver`, and the loop; the other parameters are Loop's (a limit of 0: its default).
  explicit TestingScheduler(const Driver& driver, bool batches = true, int submit_threads = -1,
                            uint64_t memory_limit_bytes = 0, const TraceMeans* means = nullptr,
                            DriverOutput* output = nullptr);
  // Closes the control socket and waits for the loop to end.
  ~TestingScheduler();

  // Each is an allocation of its own, or another process of the named one.
  std::unique_ptr<TestingTenant> AddTenant(const char* label = nullptr);
  void RemoveTenant(const TestingTenant& tenant);
  // From now on new tenants begin held.
  bool begin_held = false;
  // From now on new tenants' policy; each is an allocation and a namespace of its own, or in this one.
  control::ShareTerms shares = {};
  uint64_t namespace_id = 0;
  // The same of the device's multiprocessors.
  control::PartitionTerms partition = {};
  void SetPartition(const TestingTenant& tenant, const control::PartitionTerms& terms);
  void SetShares(const TestingTenant& tenant, const control::ShareTerms& terms,
                 const control::KernelTerms& of_kernels = {});
  // What the executor last said of why the tenant's terms are pending, and nullopt if it said nothing.
  std::optional<std::string> PendingOf(const TestingTenant& tenant);
  // Of the control version; new tenants come with it.
  uint32_t scheduler_minor = control::kControlMinor;
  // The same of their kernels' time.
  control::KernelTerms kernels = {};
  // Of its last SessionCounters.
  control::SessionCounters CountersOf(const TestingTenant& tenant);
  // How many of these have come: of a session that is held with work, one a second.
  int CounterMessages(const TestingTenant& tenant);
  // What the executor has last said of a long kernel of the tenant's; nullopt: nothing.
  std::optional<control::LongKernel> LongKernelOf(const TestingTenant& tenant);
  std::optional<control::LongKernel> WaitLongKernel(const TestingTenant& tenant);
  // From now on such kernels run for too long: what their programs get.
  void EndLongKernels(const char* text);
  // Returns the number by which the hold is known to WaitHeld.
  uint32_t Hold(const TestingTenant& tenant, bool hold);
  bool WaitHeld(uint32_t hold);
  bool WasHeld(uint32_t hold);

  // Turns at the device. Returns the number by which its drain is known.
  void GiveTurn(uint32_t lowest = 3, uint64_t in_flight_ns = UINT64_MAX);
  uint32_t EndTurn();
  bool WaitDrained(uint32_t turn);
  bool WasDrained(uint32_t turn);
  // Waits until the executor has said so of the tenant's allocation; what it never said is false.
  bool WaitWants(const TestingTenant& tenant, bool wants);
  // How often it has said that the tenant's allocation no longer wants the device.
  int Pauses(const TestingTenant& tenant);
  bool WaitPauses(const TestingTenant& tenant, int count);
  // Messages about turns that have come from it.
  int TurnMessages();
  // What it says that the tenant's allocation has used of turns.
  uint64_t TurnUse(const TestingTenant& tenant);

  // Traces. WaitTrace returns whether the executor has taken this step of the trace, in time.
  void StartTracing(uint64_t trace_id, int region);
  void StartTracingOwn(const control::StartTracingOwn& order, int region);
  void StopTracing(uint64_t trace_id);
  bool WaitTrace(uint64_t trace_id, control::TraceStep step);

  // The executor's message about a session's end; nullopt if none came within the timeout.
  std::optional<control::SessionEnded> WaitEnded(
      uint64_t session_id, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  // The executor has reported this often that the session waits for others.
  bool WaitWaits(uint64_t session_id, int times);
  // The executor no longer has the session's arena mapped.
  bool WaitArenaReturned(uint64_t session_id);
  std::optional<control::ExecutorFault> WaitFault();
  // Returns false if the loop has not ended within the timeout.
  bool WaitLoopEnd(std::chrono::milliseconds timeout);

  // Returns false if it does not become true in time. It is looked at once in any case.
  template <typename F>
  static bool WaitUntil(F condition, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    do {
      if (condition()) return true;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  // Reclaims the tenant's kept memory. Reclaim returns false if no answer came in time.
  uint64_t SendReclaim(const TestingTenant& tenant);
  bool Reclaim(const TestingTenant& tenant);

  // Granted and not returned.
  uint64_t memory_in_use() const { return grants_.in_use_bytes(); }

 private:
  TestingGrants grants_;

 public:
  // Settings; change them before memory is requested.
  std::atomic<uint64_t>& quota_bytes = grants_.quota_bytes;
  const std::atomic<uint64_t>& refused_count = grants_.refused_count;  // requests beyond it
  std::atomic<bool>& must_clear = grants_.must_clear;
  uint32_t drain_timeout_ms = 60'000;
  uint64_t pinned_limit_bytes = 8u << 20;
  // ThreadSanitizer has no room for large ones of many tests.
  uint64_t host_range_bytes = 64u << 20;

 private:
  void Serve();
  void OnMessage(const control::Incoming& in);

  const std::unique_ptr<Device> device_;
  control::Connection connection_;
  channel::UniqueFd stop_;
  std::unique_ptr<Loop> loop_;
  std::thread loop_thread_;
  std::thread thread_;
  std::atomic<bool> loop_ended_{false};
  std::atomic<bool> stopping_{false};
  uint64_t last_session_ = 0;
  std::map<std::string, uint64_t> allocations_;  // of tenants with labels, by label
  uint64_t last_reclaim_ = 0;
  uint32_t last_hold_ = 0;
  uint32_t last_turn_ = 0;

  Mutex mutex_;
  std::map<uint64_t, control::SessionReady> ready_ GPULOOM_GUARDED_BY(mutex_);
  std::map<uint64_t, control::SessionEnded> ended_ GPULOOM_GUARDED_BY(mutex_);
  std::map<uint64_t, int> waits_ GPULOOM_GUARDED_BY(mutex_);
  std::set<uint64_t> arenas_returned_ GPULOOM_GUARDED_BY(mutex_);
  std::vector<uint32_t> held_ GPULOOM_GUARDED_BY(mutex_);     // the holds that were acknowledged
  std::vector<uint32_t> drained_ GPULOOM_GUARDED_BY(mutex_);  // the turns
  std::map<uint64_t, bool> wants_ GPULOOM_GUARDED_BY(mutex_);
  std::map<uint64_t, int> pauses_ GPULOOM_GUARDED_BY(mutex_);            // by allocation
  std::map<uint64_t, uint64_t> turn_use_ns_ GPULOOM_GUARDED_BY(mutex_);  // the same
  std::map<uint64_t, control::LongKernel> long_kernels_ GPULOOM_GUARDED_BY(mutex_);   // by session
  std::map<uint64_t, control::SessionCounters> counters_ GPULOOM_GUARDED_BY(mutex_);  // the same
  std::map<uint64_t, int> counter_messages_ GPULOOM_GUARDED_BY(mutex_);               // the same
  std::map<uint64_t, std::string> pending_ GPULOOM_GUARDED_BY(mutex_);  // by allocation
  std::string kernels_end_ GPULOOM_GUARDED_BY(mutex_);
  int turn_messages_ GPULOOM_GUARDED_BY(mutex_) = 0;
  std::vector<control::TraceProgress> traces_ GPULOOM_GUARDED_BY(mutex_);
  std::optional<control::ExecutorFault> fault_ GPULOOM_GUARDED_BY(mutex_);
  uint64_t reclaimed_ GPULOOM_GUARDED_BY(mutex_) = 0;  // the newest answer
};

// Parameters of TestingDriver's kernels.
std::span<const uint8_t> PlainParams();

// Where TestingTenant puts images, in its arena.
inline constexpr uint64_t kImageOffset = 0;

// The image of a program for TestingDriver: PTX without code.
inline constexpr std::string_view kEmptyPtx =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 "
    "n) "
    "{ ret; }\n";

}  // namespace gpuloom::executor
