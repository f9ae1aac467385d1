// Physical device memory that the scheduler granted, and the names under which processes of the
// domain pass it on. A session holds memory by an id, by a mapping or by its own allocations; when
// nobody holds it any more it goes back to the scheduler (Session::Drop). What the session that it
// is charged to leaves behind is charged to one that still holds it (Session::ReturnEverything).
//
// Ring thread only. Owned by who holds it; the registry only knows it.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "agent/executor/point.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/pool_commands.h"

namespace gpuloom::executor {

using TokenKey = std::pair<uint64_t, uint64_t>;
inline TokenKey KeyOf(const wire::Token& token) { return {token.words[0], token.words[1]}; }

struct Physical {
  uint64_t charged_session = 0;
  uint64_t memory_id = 0;
  CUmemGenericAllocationHandle handle = 0;
  uint64_t size_bytes = 0;
  std::map<uint64_t, uint32_t> holders;  // by session, how often
  TokenKey token{0, 0};                  // {0, 0}: never exported
};
using PhysicalRef = std::shared_ptr<Physical>;

// Where the tenant has mapped physical memory.
struct MappedRange {
  uint64_t size_bytes;
  PhysicalRef memory;
  uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool busy = true;  // a worker has it, or it waits to be unmapped
};

// An event that several sessions record and wait for.
struct SharedEvent {
  PointRef latest;       // null: never recorded
  uint64_t session = 0;  // whose stream that lies in
  TokenKey token{0, 0};
};
using SharedEventRef = std::shared_ptr<SharedEvent>;

// A random name; false when the system has no random bytes.
[[nodiscard]] inline bool MakeToken(TokenKey* key) {
  uint64_t words[2];
  if (getrandom(words, sizeof(words), GRND_NONBLOCK) != sizeof(words)) return false;
  *key = {words[0] | 1, words[1]};  // never {0, 0}
  return true;
}

// When a table of names is to be looked through for what is gone: seldom enough that it costs
// nothing to speak of for each name.
class Tidying {
 public:
  bool Due(size_t size) const { return size >= due_; }
  void Done(size_t size) { due_ = 2 * size + 64; }

 private:
  size_t due_ = 64;
};

// A pool of one session's that others open: what has been put under it, by number. Held by who has
// it open.
struct SharedPool {
  uint64_t maker_session = 0;
  uint64_t number = 0;
  TokenKey token{0, 0};
  std::map<uint64_t, TokenKey> memory;
  std::map<TokenKey, uint64_t> numbers;  // the other way round
  uint64_t last_memory = 0;
  Tidying tidying;
};
using SharedPoolRef = std::shared_ptr<SharedPool>;

// What tenants of this executor have given a name.
class SharedMemory {
 public:
  [[nodiscard]] bool Export(const PhysicalRef& memory) {
    if (memory->token != TokenKey{0, 0}) return true;
    if (!MakeToken(&memory->token)) return false;
    known_[memory->token] = memory;
    return true;
  }
  // nullptr when it is unknown or gone.
  PhysicalRef Find(const wire::Token& token_untrusted) const {
    const auto it = known_.find(KeyOf(token_untrusted));
    return it == known_.end() ? nullptr : it->second.lock();
  }
  [[nodiscard]] bool Export(const SharedEventRef& event) {
    if (!MakeToken(&event->token)) return false;
    std::erase_if(events_, [](const auto& known) { return known.second.expired(); });
    events_[event->token] = event;
    return true;
  }
  SharedEventRef FindEvent(const wire::Token& token_untrusted) const {
    const auto it = events_.find(KeyOf(token_untrusted));
    return it == events_.end() ? nullptr : it->second.lock();
  }
  // A number for the pool, too.
  [[nodiscard]] bool Export(const SharedPoolRef& pool) {
    if (!MakeToken(&pool->token)) return false;
    pool->number = ++last_pool_;
    if (pool_tidying_.Due(pools_.size())) {
      std::erase_if(pools_, [](const auto& known) { return known.second.expired(); });
      pool_tidying_.Done(pools_.size());
    }
    pools_[pool->token] = pool;
    return true;
  }
  SharedPoolRef FindPool(const wire::Token& token_untrusted) const {
    const auto it = pools_.find(KeyOf(token_untrusted));
    return it == pools_.end() ? nullptr : it->second.lock();
  }
  // The memory's number under the pool; 0 when the system has no random bytes.
  uint64_t Put(const PhysicalRef& memory, SharedPool* pool) {
    if (!Export(memory)) return 0;
    if (pool->tidying.Due(pool->memory.size())) {
      std::erase_if(pool->memory, [&](const auto& one) { return !known_.contains(one.second); });
      std::erase_if(pool->numbers, [&](const auto& one) { return !known_.contains(one.first); });
      pool->tidying.Done(pool->memory.size());
    }
    const auto [known, is_new] = pool->numbers.emplace(memory->token, pool->last_memory + 1);
    if (is_new) pool->memory[++pool->last_memory] = memory->token;
    return known->second;
  }
  // nullptr when there is none, or nobody holds it any more.
  PhysicalRef FindIn(const SharedPool& pool, uint64_t number_untrusted) const {
    const auto it = pool.memory.find(number_untrusted);
    if (it == pool.memory.end()) return nullptr;
    const auto known = known_.find(it->second);
    return known == known_.end() ? nullptr : known->second.lock();
  }
  template <typename F>
  void ForEach(F visit) const {
    for (const auto& [token, memory] : known_) {
      if (const PhysicalRef held = memory.lock()) visit(held);
    }
  }
  void Forget(const Physical& memory) {
    if (memory.token != TokenKey{0, 0}) known_.erase(memory.token);
  }

 private:
  std::map<TokenKey, std::weak_ptr<Physical>> known_;
  std::map<TokenKey, std::weak_ptr<SharedEvent>> events_;
  std::map<TokenKey, std::weak_ptr<SharedPool>> pools_;
  Tidying pool_tidying_;
  uint64_t last_pool_ = 0;
};

}  // namespace gpuloom::executor
