#include "agent/executor/library_cache.h"

#include <sys/random.h>

#include <bit>
#include <cstdlib>
#include <cstring>

namespace gpuloom::executor {
namespace {

constexpr uint64_t kKeepNs =
    30'000'000'000;  // half of the time an executor itself waits for tenants

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

LoadedLibrary::~LoadedLibrary() {
  if (handle == nullptr) return;
  std::vector<ChainRef> users;
  if (chains != nullptr) users = chains->TakeOut(this);
  quiet->Bury(
      [driver = cuda, library = handle, users = std::move(users)]() mutable {
        users.clear();
        driver->cuLibraryUnload(library);
      },
      {});
}

LibraryCache::LibraryCache() {
  if (getrandom(key_, sizeof(key_), 0) != sizeof(key_)) abort();  // 16 bytes never come short
}

// SipHash-2-4 with 128 bits of output, by Aumasson and Bernstein.
ImageHash LibraryCache::HashImage(std::span<const uint8_t> image) const {
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
  state.v2 ^= 0xee;
  const uint64_t first = state.Squeeze();
  state.v1 ^= 0xdd;
  return {first, state.Squeeze()};
}

LibraryRef LibraryCache::Find(const ImageHash& hash, uint64_t now_ns) {
  const auto it = entries_.find(hash);
  if (it == entries_.end()) return nullptr;
  it->second.used_ns = now_ns;
  return it->second.library;
}

void LibraryCache::Add(const ImageHash& hash, LibraryRef library, uint64_t now_ns) {
  library->shared = true;
  entries_[hash] = {std::move(library), now_ns};
}

void LibraryCache::Tick(uint64_t now_ns) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    if (entry.library.use_count() > 1) entry.used_ns = now_ns;
    it = now_ns - entry.used_ns > kKeepNs ? entries_.erase(it) : std::next(it);
  }
}

}  // namespace gpuloom::executor
