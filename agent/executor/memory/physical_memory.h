// SPDX-License-Identifier: Apache-2.0
// Physical device memory granted by the scheduler, and the tokens by which processes of the domain
// share it. A session holds memory by id, by mapping or by its own allocations; when no session holds
// it any more it is returned to the scheduler (DeviceMemory::Drop). If the session that is charged
// for it ends, the charge moves to a session that still holds it (DeviceMemory::LeaveToOthers).
//
// Ring thread only. Owned by its holders; the registry only has weak references.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/shared_pool_commands.h"

namespace gpuloom::executor {

struct Point;

using TokenKey = std::pair<uint64_t, uint64_t>;
inline TokenKey KeyOf(const wire::Token& token) { return {token.words[0], token.words[1]}; }

struct Physical {
  uint64_t charged_session = 0;
  uint64_t memory_id = 0;
  CUmemGenericAllocationHandle handle = 0;
  uint64_t size_bytes = 0;
  std::map<uint64_t, uint32_t> holders;  // by session: number of references
  TokenKey token{0, 0};                  // {0, 0}: never exported
};
using PhysicalRef = std::shared_ptr<Physical>;

// A range where the tenant has mapped physical memory.
struct MappedRange {
  uint64_t size_bytes;
  PhysicalRef memory;
  uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool busy = true;  // in use by a worker, or waiting to be unmapped
};

class SharedMemory;

// An event that several sessions record and wait for. Its token dies with it.
struct SharedEvent {
  SharedEvent() = default;
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;
  ~SharedEvent();

  std::shared_ptr<Point> latest;  // null: never recorded
  uint64_t session = 0;           // of the stream that this point is in
  TokenKey token{0, 0};
  SharedMemory* named_by = nullptr;
};
using SharedEventRef = std::shared_ptr<SharedEvent>;

// Makes a random token; returns false if the system has no random bytes.
[[nodiscard]] inline bool MakeToken(TokenKey* key) {
  uint64_t words[2];
  if (getrandom(words, sizeof(words), GRND_NONBLOCK) != sizeof(words)) return false;
  *key = {words[0] | 1, words[1]};  // never {0, 0}
  return true;
}

// A pool of one session that others open: the memory put into it, by number. Held by the sessions
// that have it open. Its token dies with it.
struct SharedPool {
  SharedPool() = default;
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;
  ~SharedPool();

  uint64_t maker_session = 0;
  uint64_t number = 0;
  TokenKey token{0, 0};
  std::map<uint64_t, TokenKey> memory;
  std::map<TokenKey, uint64_t> numbers;  // the reverse mapping
  uint64_t last_memory = 0;
  // The last number for which Put has checked whether its memory still exists.
  uint64_t looked_at = 0;
  SharedMemory* named_by = nullptr;
};
using SharedPoolRef = std::shared_ptr<SharedPool>;

// Everything that tenants of this executor have exported. Outlives everything exported. However
// much tenants have exported, no operation takes longer than a lookup.
class SharedMemory {
 public:
  [[nodiscard]] bool Export(const PhysicalRef& memory) {
    if (memory->token != TokenKey{0, 0}) return true;
    if (!MakeToken(&memory->token)) return false;
    known_[memory->token] = memory;
    charged_.emplace(memory->charged_session, memory->token);
    return true;
  }
  // Returns nullptr if it is unknown or gone.
  PhysicalRef Find(const wire::Token& token_untrusted) const {
    const auto it = known_.find(KeyOf(token_untrusted));
    return it == known_.end() ? nullptr : it->second.lock();
  }
  [[nodiscard]] bool Export(const SharedEventRef& event) {
    if (!MakeToken(&event->token)) return false;
    event->named_by = this;
    events_[event->token] = event;
    return true;
  }
  SharedEventRef FindEvent(const wire::Token& token_untrusted) const {
    const auto it = events_.find(KeyOf(token_untrusted));
    return it == events_.end() ? nullptr : it->second.lock();
  }
  // Also assigns the pool's number.
  [[nodiscard]] bool Export(const SharedPoolRef& pool) {
    if (!MakeToken(&pool->token)) return false;
    pool->number = ++last_pool_;
    pool->named_by = this;
    pools_[pool->token] = pool;
    return true;
  }
  SharedPoolRef FindPool(const wire::Token& token_untrusted) const {
    const auto it = pools_.find(KeyOf(token_untrusted));
    return it == pools_.end() ? nullptr : it->second.lock();
  }
  // Returns the memory's number in the pool; 0 if the system has no random bytes.
  uint64_t Put(const PhysicalRef& memory, SharedPool* pool) {
    if (!Export(memory)) return 0;
    // Per new entry, check two old ones and drop those whose memory is gone.
    for (int i = 0; i < 2 && !pool->memory.empty(); ++i) {
      auto next = pool->memory.upper_bound(pool->looked_at);
      if (next == pool->memory.end()) next = pool->memory.begin();
      pool->looked_at = next->first;
      if (known_.contains(next->second)) continue;
      pool->numbers.erase(next->second);
      pool->memory.erase(next);
    }
    const auto [known, is_new] = pool->numbers.emplace(memory->token, pool->last_memory + 1);
    if (is_new) pool->memory[++pool->last_memory] = memory->token;
    return known->second;
  }
  // Returns nullptr if there is none, or nothing holds it any more.
  PhysicalRef FindIn(const SharedPool& pool, uint64_t number_untrusted) const {
    const auto it = pool.memory.find(number_untrusted);
    if (it == pool.memory.end()) return nullptr;
    const auto known = known_.find(it->second);
    return known == known_.end() ? nullptr : known->second.lock();
  }
  // Returns some exported memory that is charged to the session; nullptr if there is none.
  PhysicalRef AnyChargedTo(uint64_t session) {
    for (;;) {
      const auto it = charged_.lower_bound({session, TokenKey{0, 0}});
      if (it == charged_.end() || it->first != session) return nullptr;
      if (PhysicalRef memory = known_.at(it->second).lock()) return memory;
      known_.erase(it->second);
      charged_.erase(it);
    }
  }
  void Charge(Physical* memory, uint64_t to_session) {
    if (charged_.erase({memory->charged_session, memory->token}) != 0) {
      charged_.emplace(to_session, memory->token);
    }
    memory->charged_session = to_session;
  }
  void Forget(const Physical& memory) {
    if (known_.erase(memory.token) != 0) charged_.erase({memory.charged_session, memory.token});
  }
  void Forget(const SharedEvent& event) { events_.erase(event.token); }
  void Forget(const SharedPool& pool) { pools_.erase(pool.token); }
  size_t events() const { return events_.size(); }

 private:
  std::map<TokenKey, std::weak_ptr<Physical>> known_;
  std::map<TokenKey, std::weak_ptr<SharedEvent>> events_;
  std::map<TokenKey, std::weak_ptr<SharedPool>> pools_;
  std::set<std::pair<uint64_t, TokenKey>> charged_;  // entries of known_, by charged session
  uint64_t last_pool_ = 0;
};

inline SharedEvent::~SharedEvent() {
  if (named_by != nullptr) named_by->Forget(*this);
}
inline SharedPool::~SharedPool() {
  if (named_by != nullptr) named_by->Forget(*this);
}

}  // namespace gpuloom::executor
