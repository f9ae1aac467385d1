// SPDX-License-Identifier: Apache-2.0
// Memory that a session frees: kept for its next allocation, or returned to the scheduler.
#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {
namespace {

// How many blocks a worker returns in one job, so that others get their turn.
constexpr size_t kBlocksAtATime = 16;
// Memory that was not reused for this long is returned.
constexpr uint64_t kKeepNs = 1'000'000'000;

// How many pieces are returned together, with a message to the scheduler for each.
constexpr size_t kMemoryPiece = 32;

}  // namespace

// Unmaps memory and drops one hold on it. Calls `done` when the memory is kept or, if nobody holds
// it any more, returned to the scheduler.
void DeviceMemory::Unmap(uint64_t address, PhysicalRef memory, std::function<void()> done) {
  BeginReturn();
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  const uint64_t size_bytes = memory->size_bytes;
  memory_.Post(
      [result, address, size_bytes, &cuda = services_.device->cuda()] {
        *result = cuda.cuMemUnmap(address, size_bytes);
      },
      [this, result, memory = std::move(memory), done = std::move(done)] {
        JudgeUnmap(*result);
        Drop(memory, [this, done] {
          done();
          EndReturn();
        });
      });
}

void DeviceMemory::JudgeUnmap(CUresult result) {
  if (services_.device->Judge(result) == CUDA_SUCCESS) return;
  LogFor(&tenant_->lines, LogLevel::kError, "cuda: unmapping memory of session %llu (%s): %s",
         static_cast<unsigned long long>(id()), label(), services_.device->NameOf(result));
}

// Returns true if this session has the only hold on it and nobody else can get one.
bool DeviceMemory::MayKeep(const Physical& memory) const {
  return serving() && memory.charged_session == id() && memory.token == TokenKey{0, 0} &&
         memory.holders.size() == 1 && memory.holders.begin()->first == id() &&
         memory.holders.begin()->second == 1;
}

// Gives up one of this session's holds. Returns true if no session holds the memory any more.
bool DeviceMemory::ReleaseHold(const PhysicalRef& memory) {
  const auto holder = memory->holders.find(id());
  if (holder != memory->holders.end() && --holder->second == 0) memory->holders.erase(holder);
  if (!memory->holders.empty()) return false;
  services_.shared->Forget(*memory);
  return true;
}

// Releases one hold. Calls `done` when the memory is kept or, if that was the last hold, returned
// to the scheduler.
void DeviceMemory::Drop(const PhysicalRef& memory, std::function<void()> done) {
  // Kept memory is still held by this session: only ReleaseHold gives up a hold.
  if (MayKeep(*memory) && kept_.Keep({memory, 0, now_ns()})) return done();
  if (!ReleaseHold(memory)) return done();
  GiveBack({{memory, 0, 0}}, std::move(done));
}

// Unmaps blocks that nobody holds any more and returns them to the scheduler, with one message
// each. Calls `done` when the last one is answered: messages are handled in order. The handles are
// released first, so that what the scheduler counts as free is free on the device.
void DeviceMemory::GiveBack(std::vector<KeptMemory::Block> blocks, std::function<void()> done) {
  BeginReturn();
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  auto all = std::make_shared<std::vector<KeptMemory::Block>>(std::move(blocks));
  memory_.Post(
      [result, all, &cuda = services_.device->cuda()] {
        for (const auto& [memory, address, since_ns] : *all) {
          if (address != 0) {
            const CUresult unmapped = cuda.cuMemUnmap(address, memory->size_bytes);
            // The others are unmapped all the same; the last failure is logged.
            if (unmapped != CUDA_SUCCESS) *result = unmapped;
          }
          cuda.cuMemRelease(memory->handle);
        }
      },
      [this, result, all, done = std::move(done)] {
        JudgeUnmap(*result);
        for (const auto& [memory, address, since_ns] : *all) {
          if (address != 0) space_.ReleaseSpan(address, memory->size_bytes);
          const control::MemoryReturn back{memory->charged_session, memory->memory_id};
          if (memory != all->back().memory) {
            services_.scheduler->Send(back);
            continue;
          }
          services_.scheduler->Ask(back, [this, done](control::Incoming*) {
            done();
            EndReturn();
          });
        }
      });
}

// MayKeep admits only memory that this session alone holds, so nobody holds these after
// ReleaseHold.
void DeviceMemory::GiveBackKept(std::vector<KeptMemory::Block> blocks) {
  for (const auto& [memory, address, since_ns] : blocks) {
    if (address != 0) blocks_.erase(address);
    (void)ReleaseHold(memory);
  }
  for (size_t i = 0; i < blocks.size(); i += kBlocksAtATime) {
    const auto begin = blocks.begin() + static_cast<ptrdiff_t>(i);
    const size_t count = std::min(kBlocksAtATime, blocks.size() - i);
    GiveBack({begin, begin + static_cast<ptrdiff_t>(count)}, [] {});
  }
}

void DeviceMemory::GiveBackOld(uint64_t now_ns) {
  if (!kept_.empty()) GiveBackKept(kept_.TakeUntil(now_ns - std::min(now_ns, kKeepNs)));
}

// Answered even if nothing was kept: the scheduler waits for every session that it has asked.
void DeviceMemory::Reclaim(uint64_t reclaim_id) {
  GiveBackKept(kept_.TakeAll());
  const auto answer = [this, reclaim_id] {
    reclaims_.push_back(reclaim_id);
    if (returning_ == 0) OnAllReturned();
  };
  if (!std::exchange(unloading_, false)) return answer();
  // Behind what the libraries have retired. Once for each time that the program unloads: a quiet moment costs the others.
  // The session may end before it comes, and the scheduler then waits no longer.
  services_.quiet->Retire([] {},
                          [answer, alive = std::weak_ptr<void>(alive_)] {
                            if (!alive.expired()) answer();
                          });
  services_.quiet->ExpediteRetired();
}

void DeviceMemory::BeginReturn() {
  ++outstanding_;
  ++returning_;
}

void DeviceMemory::EndReturn() {
  --outstanding_;
  if (--returning_ == 0) OnAllReturned();
}

// Answers what has waited for memory to be returned: reclaims, and queries for free memory.
void DeviceMemory::OnAllReturned() {
  for (const uint64_t reclaim_id : std::exchange(reclaims_, {})) {
    services_.scheduler->Send(control::MemoryReclaimed{id(), reclaim_id});
  }
  for (const Caller caller : std::exchange(asking_memory_, {})) AnswerMemoryInfo(caller);
}

// At the end of the session, for memory that is charged to it: transfers the charge to another
// holder, or forgets the memory if there is none.
void DeviceMemory::LeaveOne(const PhysicalRef& memory) {
  if (memory->holders.empty()) return services_.shared->Forget(*memory);
  const uint64_t heir = memory->holders.begin()->first;
  // Any holder will do: whoever keeps memory is charged for it.
  services_.scheduler->Send(control::MemoryTransfer{id(), heir, memory->memory_id});
  services_.shared->Charge(memory.get(), heir);
}

void DeviceMemory::End() {
  small_waiting_.clear();
  asking_memory_.clear();
  clears_.Cancel();
}

// Unmaps one batch of the session's memory and returns what nobody else holds. Returns true if that
// was the last batch.
bool DeviceMemory::ReturnMemory() {
  std::vector<std::pair<uint64_t, uint64_t>> mapped;
  std::vector<PhysicalRef> unheld;
  const auto release = [&](const PhysicalRef& memory) {
    if (ReleaseHold(memory)) unheld.push_back(memory);
  };
  // In the first call only; later ones find nothing kept.
  for (const KeptMemory::Block& kept : kept_.TakeAll()) {
    if (kept.address == 0) release(kept.memory);  // mapped memory is among the blocks
  }
  size_t left = kMemoryPiece;
  for (; left != 0 && !blocks_.empty(); --left) {
    const auto block = blocks_.extract(blocks_.begin());
    mapped.emplace_back(block.key(), block.mapped()->size_bytes);
    release(block.mapped());
  }
  for (; left != 0 && !mappings_.empty(); --left) {
    const auto mapping = mappings_.extract(mappings_.begin());
    mapped.emplace_back(mapping.key(), mapping.mapped().size_bytes);
    release(mapping.mapped().memory);
  }
  for (; left != 0 && !left_holds_.empty(); --left) {
    release(left_holds_.back());
    left_holds_.pop_back();
  }
  for (; left != 0; --left) {
    const std::unique_ptr<PhysicalRef> memory = physicals_.TakeAny();
    if (memory == nullptr) break;
    if (*memory != nullptr) release(*memory);
  }
  // Results are ignored: the whole address range is freed after this, and an error that costs the
  // device is noticed elsewhere.
  memory_.Post(
      [&cuda = services_.device->cuda(), mapped = std::move(mapped), unheld] {
        for (const auto& [address, size_bytes] : mapped) cuda.cuMemUnmap(address, size_bytes);
        for (const PhysicalRef& memory : unheld) cuda.cuMemRelease(memory->handle);
      },
      [this, unheld] {
        for (const PhysicalRef& memory : unheld) {
          services_.scheduler->Send(
              control::MemoryReturn{memory->charged_session, memory->memory_id});
        }
      });
  if (left != 0) chores_.Do([this] { return DropPiece(&pools_); });
  return left != 0;
}

// Exported memory that other sessions hold outlives this one, and is charged to one of them from
// now on.
bool DeviceMemory::LeaveToOthers() {
  for (size_t left = kMemoryPiece; left != 0; --left) {
    const PhysicalRef memory = services_.shared->AnyChargedTo(id());
    if (memory == nullptr) return true;
    LeaveOne(memory);
  }
  return false;
}

// The device's range is the session's own, so no other session's memory is touched.
void DeviceMemory::ReturnAddresses(std::function<void()> done) {
  memory_.Post([&cuda = services_.device->cuda(), begin = order_.device_range_begin,
                bytes = order_.device_range_bytes] { cuda.cuMemAddressFree(begin, bytes); },
               [this, done = std::move(done)] {
                 address_reserved_ = false;
                 done();
               });
}

// On the pool, not on the session's lane: the session has ended by then.
void DeviceMemory::DropTables() {
  struct Tables {
    DeviceSpace space;
    RangeTable accessible;
  };
  auto tables = std::make_shared<Tables>(Tables{std::move(space_), std::move(accessible_)});
  services_.memory->Post([held = std::move(tables)] {}, [] {});
}

}  // namespace gpuloom::executor
