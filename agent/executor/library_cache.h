// Loaded libraries, shared by the sessions of this executor when they are the same bytes and hold
// no variables: a second tenant of a program then needs no load, which could wait for everybody's
// work (quiet.h), and no device memory for code. Sessions of one executor are of one trust domain.
//
// What no session uses any more stays for a while, for the next tenant of the same program. Ring
// thread only, but for HashImage.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/executor/chain.h"
#include "agent/executor/quiet.h"
#include "proto/wire/commands.h"

namespace gpuloom::executor {

using ImageHash = std::array<uint64_t, 2>;

// What a kernel is, as first looked up; the same for every session.
struct KernelFacts {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  wire::KernelGet::Reply reply{};
  std::vector<wire::KernelParam> params;
};

struct LoadedLibrary {
  LoadedLibrary(Quiet* unloads, Chains* users, const Driver* driver)
      : quiet(unloads), chains(users), cuda(driver) {}
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  ~LoadedLibrary();

  Quiet* const quiet;
  Chains* const chains;  // may name its kernels; may be null
  const Driver* const cuda;
  CUlibrary handle = nullptr;
  uint32_t kernel_count = 0;
  bool shared = false;  // in the cache: others may use it
  bool prints = false;  // its kernels may print: their launches take turns (printer.h)
  bool usable = false;  // a kernel or variable has been looked up: later ones do not wait
  std::map<std::string, KernelFacts, std::less<>> kernels;
  std::string names;  // of all kernels, each ended by a NUL, once somebody asked
  bool has_names = false;
  // The largest dynamic shared memory that any session asked for, by kernel.
  std::map<CUkernel, int> max_dynamic_shared;
};
using LibraryRef = std::shared_ptr<LoadedLibrary>;

class LibraryCache {
 public:
  LibraryCache();

  // 128 bits, keyed by a secret of this process: a tenant cannot make two images that collide.
  // Safe from any thread.
  ImageHash HashImage(std::span<const uint8_t> image) const;

  // nullptr when there is none.
  LibraryRef Find(const ImageHash& hash, uint64_t now_ns);
  void Add(const ImageHash& hash, LibraryRef library, uint64_t now_ns);
  // Lets go of what nobody has used for a while.
  void Tick(uint64_t now_ns);

 private:
  struct Entry {
    LibraryRef library;
    uint64_t used_ns;
  };
  uint64_t key_[2];
  std::map<ImageHash, Entry> entries_;
};

}  // namespace gpuloom::executor
