// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/loop.h"
#include "agent/executor/testing/device.h"
#include "proto/channel/socket.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kDeviceRangeBytes = uint64_t{1} << 30;

// A peer that cannot be set up is a bug of the test.
void Check(bool ok, const char* what) {
  if (ok) return;
  perror(what);
  abort();
}

}  // namespace

std::span<const uint8_t> PlainParams() {
  static constexpr uint8_t kParams[12] = {};
  return kParams;
}

TestingTenant::~TestingTenant() = default;

bool TestingTenant::WaitFatal(wire::Fatal fatal) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (reader.fatal() == wire::Fatal::kNone && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  return reader.fatal() == fatal;
}

uint64_t TestingTenant::Alloc(uint64_t size_bytes) {
  wire::MemAlloc::Reply reply{};
  const auto result = Call<wire::MemAlloc>({size_bytes}, &reply);
  return result == CUDA_SUCCESS ? static_cast<uint64_t>(reply.address) : 0;
}

std::optional<CUresult> TestingTenant::Free(uint64_t address) {
  return Call<wire::MemFree>({wire::DevicePtr{address}});
}

std::optional<CUresult> TestingTenant::LoadLibrary(uint32_t library, std::string_view image) {
  const uint64_t address = order.host_range_begin + kImageOffset;
  std::memcpy(reinterpret_cast<void*>(address), image.data(), image.size());
  return Call<wire::LibraryLoad>(
      {wire::LibraryId{library}, 0, wire::HostPtr{address}, image.size()});
}

bool TestingTenant::PinArena(uint64_t offset, uint64_t size_bytes) {
  const uint64_t address = order.host_range_begin + offset;
  std::memset(reinterpret_cast<void*>(address), 1, size_bytes);
  return Call<wire::HostRegister>({wire::HostPtr{address}, size_bytes}) == CUDA_SUCCESS;
}

bool TestingTenant::LoadKernel(uint32_t library, uint32_t kernel, std::string_view name,
                               std::string_view image) {
  if (LoadLibrary(library, image) != CUDA_SUCCESS) return false;
  const auto* bytes = reinterpret_cast<const uint8_t*>(name.data());
  return Call<wire::KernelGet>({wire::LibraryId{library}, wire::KernelId{kernel}}, nullptr,
                               {bytes, name.size()}) == CUDA_SUCCESS;
}

wire::Ticket TestingTenant::Launch(uint32_t stream, uint32_t kernel,
                                   std::span<const uint8_t> params) {
  return Post<wire::Launch>(
      {wire::StreamId{stream}, wire::KernelId{kernel}, {1, 1, 1}, {1, 1, 1}, 0, 0}, params);
}

wire::Ticket TestingTenant::LaunchPlain(uint32_t stream, uint32_t kernel) {
  return Launch(stream, kernel, PlainParams());
}

bool TestingTenant::CreateStream(uint32_t stream, bool nonblocking) {
  return Call<wire::StreamCreate>({wire::StreamId{stream}, nonblocking, 0}) == CUDA_SUCCESS;
}

TestingScheduler::TestingScheduler(const Driver& driver, bool batches, int submit_threads,
                                   uint64_t memory_limit_bytes, const TraceMeans* means,
                                   DriverOutput* output)
    : grants_(&driver), device_(std::make_unique<Device>(driver)) {
  StartFirst(device_.get());
  std::string error;
  channel::UniqueFd ours;
  channel::UniqueFd theirs;
  Check(channel::MakePair(SOCK_SEQPACKET, &ours, &theirs), "control socket");
  connection_ = control::Connection(std::move(ours));
  loop_ = std::make_unique<Loop>(
      device_.get(), std::move(theirs), output, batches, submit_threads,
      memory_limit_bytes == 0 ? DomainBudget::kDefaultBytes : memory_limit_bytes,
      /*shares=*/true, means);
  Check(loop_->Start(&error), error.c_str());
  loop_thread_ = std::thread([this] {
    device_->MakeCurrent();
    loop_->Run();
    loop_ended_ = true;
  });
  thread_ = std::thread([this] { Serve(); });
}

TestingScheduler::~TestingScheduler() {
  stopping_ = true;
  shutdown(connection_.fd(), SHUT_RDWR);
  thread_.join();
  loop_thread_.join();
}

bool TestingScheduler::WaitLoopEnd(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!loop_ended_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return loop_ended_;
}

void TestingScheduler::Serve() {
  while (!stopping_) {
    control::Incoming in;
    if (!connection_.Receive(&in)) return;
    OnMessage(in);
  }
}

void TestingScheduler::OnMessage(const control::Incoming& in) {
  if (grants_.Answer(&connection_, in)) return;
  control::SessionReady ready;
  control::SessionEnded ended;
  control::SessionWaits waits;
  control::ArenaReturned arena;
  control::ExecutorFault fault;
  control::MemoryReclaimed reclaimed;
  control::SessionHeld held;
  control::AllocationWants wants;
  control::TurnUsage usage;
  control::TurnDrained drained;
  control::TraceProgress trace;
  control::LongKernel long_kernel;
  control::SessionCounters counters;
  control::PartitionPending pending;
  const MutexLock lock(mutex_);
  if (in.As(&ready)) {
    ready_[ready.session_id] = ready;
  } else if (in.As(&ended)) {
    ended_[ended.session_id] = ended;
  } else if (in.As(&waits)) {
    ++waits_[waits.session_id];
  } else if (in.As(&arena)) {
    arenas_returned_.insert(arena.session_id);
  } else if (in.As(&fault)) {
    fault_ = fault;
  } else if (in.As(&reclaimed)) {
    reclaimed_ = reclaimed.reclaim_id;
  } else if (in.As(&held)) {
    held_.push_back(in.header.request);
  } else if (in.As(&wants)) {
    ++turn_messages_;
    wants_[wants.allocation_id] = wants.wants != 0;
    pauses_[wants.allocation_id] += wants.wants == 0;
  } else if (in.As(&usage)) {
    ++turn_messages_;
    for (uint32_t i = 0; i < usage.count; ++i) {
      turn_use_ns_[usage.uses[i].allocation_id] += usage.uses[i].used_ns;
    }
  } else if (in.As(&counters)) {
    counters_[counters.session_id] = counters;
    ++counter_messages_[counters.session_id];
  } else if (in.As(&pending)) {
    pending_[pending.allocation_id] = control::TextOf(pending.why);
  } else if (in.As(&long_kernel)) {
    long_kernels_[long_kernel.session_id] = long_kernel;
    control::Answer answer = {};
    answer.ok = kernels_end_.empty();
    control::SetText(answer.message, kernels_end_.c_str());
    (void)connection_.Send(in.header.request, answer);
  } else if (in.As(&drained)) {
    ++turn_messages_;
    drained_.push_back(in.header.request);
  } else if (in.As(&trace)) {
    traces_.push_back(trace);
  }
}

std::unique_ptr<TestingTenant> TestingScheduler::AddTenant(const char* label) {
  auto tenant = std::make_unique<TestingTenant>();
  control::AddSession& order = tenant->order;
  order.session_id = ++last_session_;
  // Never the same twice in a process: drivers keep what an earlier test has left.
  static uint64_t ranges = 0;
  static uint64_t host_end = kTestingHostBegin;
  ++ranges;
  order.device_range_begin = kTestingDeviceBegin + ranges * kDeviceRangeBytes;
  order.device_range_bytes = kDeviceRangeBytes;
  order.device_own_bytes = kDeviceRangeBytes / 2;
  order.host_range_begin = std::exchange(host_end, host_end + host_range_bytes);
  order.host_range_bytes = host_range_bytes;
  order.pinned_limit_bytes = pinned_limit_bytes;
  order.memory_quota_bytes = quota_bytes;
  order.drain_timeout_ms = drain_timeout_ms;
  order.held = begin_held ? 1 : 0;
  order.allocation_id = order.namespace_id = order.session_id;
  order.slots = 1;
  order.shares = shares;
  order.partition = partition;
  order.kernels = kernels;
  order.scheduler_minor = scheduler_minor;
  snprintf(order.label, sizeof(order.label), "tests/tenant-%llu/main",
           static_cast<unsigned long long>(last_session_));
  if (label != nullptr) {
    control::SetText(order.label, label);
    const uint64_t allocation = allocations_.try_emplace(label, last_session_).first->second;
    order.allocation_id = order.namespace_id = allocation;
  }
  if (namespace_id != 0) order.namespace_id = namespace_id;
  const auto theirs = tenant->Make(host_range_bytes);
  int fds[control::kSessionFds];
  for (uint32_t i = 0; i < control::kSessionFds; ++i) fds[i] = theirs[i].get();
  Check(connection_.Send(static_cast<uint32_t>(last_session_), order, fds, control::kSessionFds),
        "AddSession");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    const MutexLock lock(mutex_);
    const auto it = ready_.find(order.session_id);
    if (it == ready_.end()) continue;
    tenant->ready = it->second;
    break;
  }
  return tenant;
}

void TestingScheduler::RemoveTenant(const TestingTenant& tenant) {
  (void)connection_.Send(0, control::RemoveSession{tenant.order.session_id});
}

void TestingScheduler::SetShares(const TestingTenant& tenant, const control::ShareTerms& terms,
                                 const control::KernelTerms& of_kernels) {
  (void)connection_.Send(
      0, control::SetShares{tenant.order.allocation_id, 1, terms, {}, of_kernels, 0, 0});
}

void TestingScheduler::SetPartition(const TestingTenant& tenant,
                                    const control::PartitionTerms& terms) {
  (void)connection_.Send(
      0, control::SetShares{tenant.order.allocation_id, 1, tenant.order.shares, terms, {}, 0, 0});
}

control::SessionCounters TestingScheduler::CountersOf(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  return counters_[tenant.order.session_id];
}

int TestingScheduler::CounterMessages(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  return counter_messages_[tenant.order.session_id];
}

std::optional<control::LongKernel> TestingScheduler::LongKernelOf(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  const auto it = long_kernels_.find(tenant.order.session_id);
  return it == long_kernels_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<control::LongKernel> TestingScheduler::WaitLongKernel(const TestingTenant& tenant) {
  (void)WaitUntil([&] { return LongKernelOf(tenant).has_value(); });
  return LongKernelOf(tenant);
}

std::optional<std::string> TestingScheduler::PendingOf(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  const auto it = pending_.find(tenant.order.allocation_id);
  return it == pending_.end() ? std::nullopt : std::optional(it->second);
}

void TestingScheduler::EndLongKernels(const char* text) {
  const MutexLock lock(mutex_);
  kernels_end_ = text;
}

uint32_t TestingScheduler::Hold(const TestingTenant& tenant, bool hold) {
  const uint32_t request = hold ? ++last_hold_ : 0;
  (void)connection_.Send(
      request,
      control::HoldSession{tenant.order.session_id,
                           static_cast<uint32_t>(control::HoldReason::kOperator), hold ? 1u : 0u});
  return request;
}

bool TestingScheduler::WasHeld(uint32_t hold) {
  const MutexLock lock(mutex_);
  return std::find(held_.begin(), held_.end(), hold) != held_.end();
}

bool TestingScheduler::WaitHeld(uint32_t hold) {
  return WaitUntil([&] { return WasHeld(hold); });
}

void TestingScheduler::GiveTurn(uint32_t lowest, uint64_t in_flight_ns) {
  (void)connection_.Send(0, control::GiveTurn{lowest, 0, in_flight_ns});
}

uint32_t TestingScheduler::EndTurn() {
  (void)connection_.Send(++last_turn_, control::EndTurn{});
  return last_turn_;
}

void TestingScheduler::StartTracing(uint64_t trace_id, int region) {
  (void)connection_.Send(0, control::StartTracing{trace_id}, &region, 1);
}

void TestingScheduler::StartTracingOwn(const control::StartTracingOwn& order, int region) {
  (void)connection_.Send(0, order, &region, 1);
}

void TestingScheduler::StopTracing(uint64_t trace_id) {
  (void)connection_.Send(0, control::StopTracing{trace_id});
}

bool TestingScheduler::WaitTrace(uint64_t trace_id, control::TraceStep step) {
  return WaitUntil([&] {
    const MutexLock lock(mutex_);
    return std::any_of(traces_.begin(), traces_.end(), [&](const control::TraceProgress& said) {
      return said.trace_id == trace_id && said.step == static_cast<uint32_t>(step);
    });
  });
}

bool TestingScheduler::WasDrained(uint32_t turn) {
  const MutexLock lock(mutex_);
  return std::find(drained_.begin(), drained_.end(), turn) != drained_.end();
}

bool TestingScheduler::WaitDrained(uint32_t turn) {
  return WaitUntil([&] { return WasDrained(turn); });
}

bool TestingScheduler::WaitWants(const TestingTenant& tenant, bool wants) {
  return WaitUntil([&] {
    const MutexLock lock(mutex_);
    return wants_[tenant.order.allocation_id] == wants;
  });
}

int TestingScheduler::Pauses(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  return pauses_[tenant.order.allocation_id];
}

bool TestingScheduler::WaitPauses(const TestingTenant& tenant, int count) {
  return WaitUntil([&] { return Pauses(tenant) >= count; });
}

int TestingScheduler::TurnMessages() {
  const MutexLock lock(mutex_);
  return turn_messages_;
}

uint64_t TestingScheduler::TurnUse(const TestingTenant& tenant) {
  const MutexLock lock(mutex_);
  return turn_use_ns_[tenant.order.allocation_id];
}

uint64_t TestingScheduler::SendReclaim(const TestingTenant& tenant) {
  const uint64_t id = ++last_reclaim_;
  (void)connection_.Send(0, control::MemoryReclaim{tenant.order.session_id, id});
  return id;
}

bool TestingScheduler::Reclaim(const TestingTenant& tenant) {
  const uint64_t id = SendReclaim(tenant);
  return WaitUntil([&] {
    const MutexLock lock(mutex_);
    return reclaimed_ == id;
  });
}

std::optional<control::SessionEnded> TestingScheduler::WaitEnded(
    uint64_t session_id, std::chrono::milliseconds timeout) {
  std::optional<control::SessionEnded> ended;
  WaitUntil(
      [&] {
        const MutexLock lock(mutex_);
        const auto it = ended_.find(session_id);
        if (it != ended_.end()) ended = it->second;
        return ended.has_value();
      },
      timeout);
  return ended;
}

bool TestingScheduler::WaitWaits(uint64_t session_id, int times) {
  return WaitUntil([&] {
    const MutexLock lock(mutex_);
    return waits_[session_id] >= times;
  });
}

bool TestingScheduler::WaitArenaReturned(uint64_t session_id) {
  return WaitUntil([&] {
    const MutexLock lock(mutex_);
    return arenas_returned_.contains(session_id);
  });
}

std::optional<control::ExecutorFault> TestingScheduler::WaitFault() {
  std::optional<control::ExecutorFault> fault;
  WaitUntil([&] {
    const MutexLock lock(mutex_);
    fault = fault_;
    return fault.has_value();
  });
  return fault;
}

}  // namespace gpuloom::executor
