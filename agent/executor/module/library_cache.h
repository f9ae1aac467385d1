// SPDX-License-Identifier: Apache-2.0
// What this executor knows about images, so that none is sent, examined, compiled or loaded twice
// unnecessarily. Sessions of one executor belong to one trust domain; nothing in the cache leaves it.
//
// An image is identified by the hash of its bytes, computed here from the bytes that a tenant sent.
// A tenant may refer to one by hash alone: this reveals only that some tenant of its domain has
// loaded the same image. The cache keeps the bytes, as the driver needs them, and, if the image has
// no variables, the loaded library itself: the next tenant that runs the program needs no load,
// which might have to wait for all tenants' work (quiet.h), and no device memory for code.
//
// The bytes are limited, and charged to the domain (host_budget.h): least recently used first out.
// Ring thread only, except Hash.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/large_free.h"
#include "proto/cuda/image_hash.h"
#include "proto/cuda/kernel_layouts.h"
#include "proto/cuda/system_atomics.h"
#include "proto/sync/mutex.h"
#include "proto/wire/kernel_commands.h"

namespace gpuloom::executor {

// Kernels of an image that programs have asked for, the first ones: who loads it anew gets them with its first kernel, in
// one quiet moment. Few and short, because tenants choose images and what they ask for.
class AskedFor {
 public:
  static constexpr size_t kMostNames = 128;
  static constexpr size_t kMostBytes = 16u << 10;

  void Note(const std::string& name) {
    if (names_.size() == kMostNames || bytes_ + name.size() > kMostBytes) return;
    if (names_.insert(name).second) bytes_ += name.size();
  }
  const std::set<std::string>& names() const { return names_; }

 private:
  std::set<std::string> names_;
  size_t bytes_ = 0;
};

// An image that has been loaded successfully. Immutable, but for what is noted about it.
struct KnownImage {
  KnownImage() = default;
  KnownImage(const KnownImage&) = delete;
  KnownImage& operator=(const KnownImage&) = delete;
  ~KnownImage() { FreeElsewhere(std::move(bytes)); }

  std::vector<uint8_t>
      bytes;  // passed to the driver: the tenant's, or what its PTX was compiled to; NUL-terminated
  // Copies to a buffer of the exact size, whatever the previous one's; NUL-terminated.
  void SetBytes(std::span<const uint8_t> image) {
    std::vector<uint8_t> own(image.size() + 1);
    std::copy(image.begin(), image.end(), own.begin());
    bytes = std::move(own);
  }
  // Takes over what was unpacked (UnpackMember), which has room for the NUL.
  void SetBytes(std::vector<uint8_t>&& image) {
    image.push_back(0);
    bytes = std::move(image);
  }

  uint64_t sent_bytes = 0;  // the size of what the tenant sent
  bool has_variables = true;
  bool prints = true;
  uint64_t device_bytes = 0;  // charged to each session that loads it
  SystemAtomics system_atomics;
  // Set only if the driver does not report the layout of parameters (before CUDA 12.4).
  std::shared_ptr<const KernelLayouts> layouts;
  // Memory in this process while loaded: the bytes, and what the driver makes of them.
  uint64_t cost_bytes = 0;
  // The cache's charge, from when the image is cached until its bytes are released by the last user. Ring thread.
  mutable std::unique_ptr<HostCharge> remembered;
  mutable AskedFor asked_for;  // ring thread
};
using ImageRef = std::shared_ptr<const KnownImage>;

// A session's charge for an image it has loaded, shared or not: held until the session has unloaded it,
// and, if no other session may use the loaded library, until the driver has. Released on the ring thread.
struct ImageCost {
  explicit ImageCost(std::shared_ptr<SessionBudget> budget) : host(std::move(budget)) {}

  HostCharge host;
  DeviceChargeRef device;
};

// Properties of a kernel, from its first look-up; the same for every session.
struct KernelFacts {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  wire::KernelGet::Reply reply{};
  std::vector<wire::KernelParam> params;
};

// The largest dynamic shared memory that the driver granted any session, by kernel. For workers of all sessions that
// share a library: a limit that is too high harms nobody, but one lowered by another session makes launches fail.
class SharedMemoryLimits {
 public:
  // Calls set(limit), which is to set it in the driver and return the result, with the larger of what is wanted and what
  // was granted. What the driver refuses counts for nobody. The lock is held meanwhile: else a call that is late at
  // the driver would lower what another has raised.
  template <typename F>
  CUresult Raise(CUkernel kernel, int wanted_bytes, F set) {
    const MutexLock lock(mutex_);
    const auto known = granted_bytes_.find(kernel);
    const int limit =
        known == granted_bytes_.end() ? wanted_bytes : std::max(wanted_bytes, known->second);
    const CUresult result = set(limit);
    if (result == CUDA_SUCCESS) granted_bytes_[kernel] = limit;
    return result;
  }

 private:
  Mutex mutex_;
  std::map<CUkernel, int> granted_bytes_ GPULOOM_GUARDED_BY(mutex_);
};

class References;

struct LoadedLibrary {
  LoadedLibrary(Quiet* unloads, Chains* users, const Driver* driver)
      : quiet(unloads), chains(users), cuda(driver) {}
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  ~LoadedLibrary();

  Quiet* const quiet;
  Chains* const chains;  // may refer to its kernels; may be null
  const Driver* const cuda;
  CUlibrary handle = nullptr;
  std::shared_ptr<const void> kept;  // what the driver reads when it finally loads the library
  ImageRef image;                    // the driver reads it as long as the library is loaded
  std::shared_ptr<ImageCost> cost;   // of the session that loaded it; null: shared
  uint32_t kernel_count = 0;
  // Other sessions use it or, once it is in the cache, may: no session changes how the others' launches go.
  bool shared = false;
  bool prints = false;    // its kernels may print: their launches take turns (printer.h)
  bool usable = false;    // a kernel or variable was found: looking up variables does not wait
  bool complete = false;  // all of its kernels are loaded: looking them up does not wait either
  std::set<std::string, std::less<>> loaded_along;  // of those that are not all, with another one
  std::map<std::string, KernelFacts, std::less<>> kernels;
  std::string names;  // of all kernels, NUL-terminated each, once requested
  uint32_t name_count = 0;
  bool has_names = false;
  std::shared_ptr<HostCharge> names_charge;  // of the session that requested them
  SharedMemoryLimits shared_memory;
  // Its texture and surface references, once one is requested. Always null for shared libraries.
  std::shared_ptr<References> references;
};
using LibraryRef = std::shared_ptr<LoadedLibrary>;

class LibraryCache {
 public:
  // Kept for future tenants, besides what tenants have loaded: the images of a program that uses
  // all of PyTorch's libraries take about 100 MiB.
  static constexpr uint64_t kMaxBytes = uint64_t{512} << 20;

  explicit LibraryCache(std::shared_ptr<DomainBudget> budget);

  // SHA-256 if the processor accelerates it; only then do tenants ask by hash. Otherwise SipHash with a secret key
  // of this process: tenants can neither compute such a hash nor create colliding images. Safe from any thread.
  ImageHash Hash(std::span<const uint8_t> image) const;

  struct Known {
    ImageRef image;      // null: unknown
    LibraryRef library;  // null: every tenant loads its own
  };
  Known Find(const ImageHash& hash, uint64_t now_ns);
  // Returns true if an image of which so many bytes were sent is known, or expected.
  bool KnowsSize(uint64_t sent_bytes) const { return sizes_.contains(sent_bytes); }
  // An image of this size will probably be added, from the one call until the other.
  void Expect(uint64_t sent_bytes) { ++sizes_[sent_bytes]; }
  void Expected(uint64_t sent_bytes);
  // Shares `library`, which is marked as shared, from now on unless the image has variables. Existing entries stay; an image
  // for which there is no room, next to removed images that are still in use, is not cached.
  void Add(const ImageHash& hash, ImageRef image, const LibraryRef& library, uint64_t now_ns);
  // Releases loaded libraries that have been unused for a while, and later their images.
  void Tick(uint64_t now_ns);
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    ImageRef image;
    LibraryRef library;
    uint64_t used_ns;
  };
  using Entries = std::map<ImageHash, Entry>;
  Entries::iterator Erase(Entries::iterator entry);

  void Remember(const ImageHash& hash, ImageRef image, uint64_t now_ns);

  const std::shared_ptr<SessionBudget> budget_;
  uint64_t key_[2];
  Entries entries_;
  std::map<uint64_t, uint32_t> sizes_;  // how many there are of what was sent, by its size
  uint64_t bytes_ = 0;
};

}  // namespace gpuloom::executor
