// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/module/library_cache.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace gpuloom::executor {
namespace {

// A kept library occupies device memory, so it is kept for half as long as an executor without
// tenants.
constexpr uint64_t kKeepLibraryNs = 30'000'000'000;
constexpr uint64_t kKeepImageNs = 600'000'000'000;

// What the image takes apart from any session: never less than its bytes, which the cache keeps in
// any case.
uint64_t CostOf(const KnownImage& image) {
  return std::max<uint64_t>(image.cost_bytes, image.bytes.size());
}

// The rounds of SipHash.
struct SipState {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
  uint64_t Squeeze() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

// On the ring thread. Graphs that name its kernels are destroyed before the library is unloaded,
// both in a quiet moment; if a worker is releasing some of them already, that is waited for first.
// What the driver reads (`bytes`, `keep`) and what was paid stay until it has unloaded it.
LoadedLibrary::~LoadedLibrary() {
  // It was never loaded.
  if (handle == nullptr) return;
  std::vector<ChainRef> users;
  if (chains != nullptr) users = chains->TakeOut(this);
  // There may be many of them, so a worker destroys them.
  auto known = std::make_shared<std::pair<std::string, decltype(kernels)>>(std::move(names),
                                                                           std::move(kernels));
  auto unload = [unloads = quiet, keep = std::move(kept), driver = cuda, library = handle,
                 bytes = image, paid = std::move(cost), users = std::move(users),
                 known = std::move(known), bound = std::move(references)]() mutable {
    unloads->Retire(
        [keep, driver, library, bytes, users = std::move(users),
         known = std::move(known)]() mutable {
          users.clear();
          known.reset();
          driver->cuLibraryUnload(library);
        },
        // Then what they are bound to is released, on this thread.
        [bound, bytes, paid] {});
  };
  if (chains == nullptr) {
    unload();
  } else {
    chains->AfterRelease(std::move(unload));
  }
}

LibraryCache::LibraryCache(std::shared_ptr<DomainBudget> budget)
    : budget_(std::make_shared<SessionBudget>(std::move(budget), kMaxBytes)) {
  if (getrandom(key_, sizeof(key_), 0) != sizeof(key_)) abort();  // 16 bytes never come short
}

// SipHash-2-4 with 128 bits of output, by Aumasson and Bernstein.
ImageHash LibraryCache::Hash(std::span<const uint8_t> image) const {
  if (HashesImagesFast()) return HashImage(image.data(), image.size());
  SipState state{key_[0] ^ 0x736f6d6570736575, key_[1] ^ 0x646f72616e646f6d ^ 0xee,
                 key_[0] ^ 0x6c7967656e657261, key_[1] ^ 0x7465646279746573};
  const uint8_t* at = image.data();
  size_t left = image.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    state.Absorb(word);
  }
  uint64_t last = uint64_t{image.size()} << 56;
  for (size_t i = 0; i < left; ++i) last |= uint64_t{at[i]} << (8 * i);
  state.Absorb(last);
  // 0xee, twice, and 0xdd mark the variant with 128 bits of output.
  state.v2 ^= 0xee;
  const uint64_t first = state.Squeeze();
  state.v1 ^= 0xdd;
  return {{first, state.Squeeze(), 0, 0}};
}

LibraryCache::Known LibraryCache::Find(const ImageHash& hash, uint64_t now_ns) {
  const auto it = entries_.find(hash);
  if (it == entries_.end()) return {};
  // Asking counts as using: a program that starts again and again keeps its images here.
  it->second.used_ns = now_ns;
  return {it->second.image, it->second.library};
}

// Two sessions may have loaded the same image at the same time: the first one's library is shared,
// the other's stays its own.
void LibraryCache::Add(const ImageHash& hash, ImageRef image, const LibraryRef& library,
                       uint64_t now_ns) {
  if (entries_.find(hash) == entries_.end()) Remember(hash, std::move(image), now_ns);
  const auto known = entries_.find(hash);
  if (known == entries_.end() || known->second.image->has_variables) return;
  if (known->second.library == nullptr) {
    // From now on each session that uses it pays for itself (Library::cost).
    library->cost.reset();
    known->second.library = library;
  }
}

// bytes_ bounds what the cache holds; the budget counts besides what has been removed and is still
// in use.
void LibraryCache::Remember(const ImageHash& hash, ImageRef image, uint64_t now_ns) {
  const uint64_t cost_bytes = CostOf(*image);
  if (cost_bytes > kMaxBytes) return;
  while (bytes_ + cost_bytes > kMaxBytes) {
    Erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      return a.second.used_ns < b.second.used_ns;
    }));
  }
  image->remembered = std::make_unique<HostCharge>(budget_);
  if (!image->remembered->Add(cost_bytes)) return;
  bytes_ += cost_bytes;
  Expect(image->sent_bytes);
  entries_.emplace(hash, Entry{std::move(image), nullptr, now_ns});
}

void LibraryCache::Expected(uint64_t sent_bytes) {
  const auto it = sizes_.find(sent_bytes);
  if (--it->second == 0) sizes_.erase(it);
}

LibraryCache::Entries::iterator LibraryCache::Erase(Entries::iterator entry) {
  bytes_ -= CostOf(*entry->second.image);
  Expected(entry->second.image->sent_bytes);
  return entries_.erase(entry);
}

void LibraryCache::Tick(uint64_t now_ns) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    // Used by a session, or by what it left in a queue.
    if (entry.library.use_count() > 1) entry.used_ns = now_ns;
    const uint64_t unused_ns = now_ns - std::min(entry.used_ns, now_ns);
    if (unused_ns > kKeepLibraryNs) entry.library.reset();
    it = unused_ns > kKeepImageNs ? Erase(it) : std::next(it);
  }
}

}  // namespace gpuloom::executor
