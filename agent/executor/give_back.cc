// Memory that a session lets go of: kept for its next need, or given back to the scheduler.
#include <algorithm>

#include "agent/executor/session.h"

namespace gpuloom::executor {
namespace {

// So many go back in one piece of a worker's work, so that others get their turn.
constexpr size_t kBlocksAtATime = 16;
// What has not been of use for so long is not kept any more.
constexpr uint64_t kKeepNs = 1'000'000'000;

}  // namespace

// Takes the memory away and lets go of it; `done` when it is kept or the scheduler has what nobody
// holds.
void Session::Unmap(uint64_t address, PhysicalRef memory, std::function<void()> done) {
  BeginReturn();
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post([result, address, size_bytes = memory->size_bytes,
                &cuda = place_.device->cuda()] { *result = cuda.cuMemUnmap(address, size_bytes); },
               [this, result, memory, done = std::move(done)] {
                 JudgeUnmap(*result);
                 Drop(memory, [this, done] {
                   done();
                   EndReturn();
                 });
               });
}

void Session::JudgeUnmap(CUresult result) {
  if (place_.device->Judge(result) == CUDA_SUCCESS) return;
  LogFor(&tenant_->lines, LogLevel::kError, "cuda: unmapping memory of session %llu (%s): %s",
         static_cast<unsigned long long>(id()), label(), place_.device->NameOf(result));
}

// Nobody else has it or can get it, and it is held for one thing only.
bool Session::MayKeep(const Physical& memory) const {
  return state_ == State::kServing && memory.charged_session == id() &&
         memory.token == TokenKey{0, 0} && memory.holders.size() == 1 &&
         memory.holders.begin()->first == id() && memory.holders.begin()->second == 1;
}

// True when nobody holds it any more.
bool Session::LetGo(const PhysicalRef& memory) {
  const auto holder = memory->holders.find(id());
  if (holder != memory->holders.end() && --holder->second == 0) memory->holders.erase(holder);
  if (!memory->holders.empty()) return false;
  place_.shared->Forget(*memory);
  return true;
}

// One hold less. `done` when it is kept or the scheduler has it, if it was the last.
void Session::Drop(const PhysicalRef& memory, std::function<void()> done) {
  if (MayKeep(*memory) && kept_.Keep({memory, 0, now_ns_})) return done();
  if (!LetGo(memory)) return done();
  GiveBack({{memory, 0, 0}}, std::move(done));
}

// What is held no more, to the scheduler, unmapped before where it is mapped. `done` when it is
// there.
void Session::GiveBack(std::vector<KeptMemory::Block> blocks, std::function<void()> done) {
  BeginReturn();
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  auto all = std::make_shared<std::vector<KeptMemory::Block>>(std::move(blocks));
  memory_.Post(
      [result, all, &cuda = place_.device->cuda()] {
        for (const auto& [memory, address, since_ns] : *all) {
          if (address != 0) {
            const CUresult unmapped = cuda.cuMemUnmap(address, memory->size_bytes);
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
            place_.scheduler->Send(back);
            continue;
          }
          place_.scheduler->Ask(back, [this, done](control::Incoming*) {
            done();
            EndReturn();
          });
        }
      });
}

void Session::GiveBackKept(std::vector<KeptMemory::Block> blocks) {
  for (const auto& [memory, address, since_ns] : blocks) {
    if (address != 0) blocks_.erase(address);
    (void)LetGo(memory);
  }
  for (size_t i = 0; i < blocks.size(); i += kBlocksAtATime) {
    const auto begin = blocks.begin() + static_cast<ptrdiff_t>(i);
    const size_t count = std::min(kBlocksAtATime, blocks.size() - i);
    GiveBack({begin, begin + static_cast<ptrdiff_t>(count)}, [] {});
  }
}

void Session::GiveBackOld(uint64_t now_ns) {
  if (!kept_.empty()) GiveBackKept(kept_.TakeUntil(now_ns - std::min(now_ns, kKeepNs)));
}

void Session::Reclaim(uint64_t reclaim_id) {
  GiveBackKept(kept_.TakeAll());
  reclaims_.push_back(reclaim_id);
  if (returning_ == 0) TellReturned();
}

void Session::BeginReturn() {
  ++outstanding_;
  ++returning_;
}

void Session::EndReturn() {
  --outstanding_;
  if (--returning_ == 0) TellReturned();
}

void Session::TellReturned() {
  for (const uint64_t reclaim_id : std::exchange(reclaims_, {})) {
    place_.scheduler->Send(control::MemoryReclaimed{id(), reclaim_id});
  }
  for (const Asker asker : std::exchange(asking_memory_, {})) TellMemory(asker);
}

// This session ends: what it is charged with and others still hold.
void Session::LeaveToOthers(const PhysicalRef& memory) {
  if (memory->holders.empty()) return place_.shared->Forget(*memory);
  const uint64_t heir = memory->holders.begin()->first;
  place_.scheduler->Send(control::MemoryTransfer{id(), heir, memory->memory_id});
  place_.shared->Charge(memory.get(), heir);
}

}  // namespace gpuloom::executor
