// SPDX-License-Identifier: Apache-2.0
// What this executor knows of images, so that none is sent, examined, compiled or loaded twice without
// need. Sessions of one executor are of one trust domain; nothing here goes beyond it.
//
// An image is known by the hash of its bytes, computed here from the bytes that a tenant sent. A tenant
// may name one by its hash alone: that tells it no more than that somebody of its domain has loaded
// the same. Kept are the bytes, as the driver wants them, and, when the image holds no variables, the
// loaded library itself: the next tenant of the program then needs no load, which could wait for
// everybody's work (quiet.h), and no device memory for code.
//
// The bytes are bounded and the domain's (host_budget.h): what was not used for longest goes first. Ring thread only, but for Hash.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/large_free.h"
#include "proto/cuda/image_hash.h"
#include "proto/wire/commands.h"

namespace gpuloom::executor {

// An image that a load has proved good. Never changed.
struct KnownImage {
  KnownImage() = default;
  KnownImage(const KnownImage&) = delete;
  KnownImage& operator=(const KnownImage&) = delete;
  ~KnownImage() { FreeElsewhere(std::move(bytes)); }

  std::vector<uint8_t>
      bytes;  // what the driver is given: the tenant's, or what its PTX was compiled to; a NUL behind
  // In memory of their own size, however much there was before; a NUL behind.
  void SetBytes(std::span<const uint8_t> image) {
    std::vector<uint8_t> own(image.size() + 1);
    std::copy(image.begin(), image.end(), own.begin());
    bytes = std::move(own);
  }

  bool has_variables = true;
  bool prints = true;
  uint64_t device_bytes = 0;  // that each who loads it is charged
  // What it costs this process, loaded: the bytes, and what the driver makes of them.
  uint64_t cost_bytes = 0;
  // The cache's, from the moment at which it is remembered until the last who uses the bytes lets go.
  // Ring thread.
  mutable std::unique_ptr<HostCharge> remembered;
};
using ImageRef = std::shared_ptr<const KnownImage>;

// What a session is charged for an image that it has loaded, shared or not: until it has unloaded it, and
// where nobody else may use what it loaded, until the driver has. Let go of on the ring thread.
struct ImageCost {
  explicit ImageCost(std::shared_ptr<SessionBudget> budget) : host(std::move(budget)) {}

  HostCharge host;
  DeviceChargeRef device;
};

// What a kernel is, as first looked up; the same for every session.
struct KernelFacts {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  wire::KernelGet::Reply reply{};
  std::vector<wire::KernelParam> params;
};

class References;

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
  std::shared_ptr<const void> kept;  // what the driver reads when it loads the library at last
  ImageRef image;                    // the driver reads it as long as the library is loaded
  std::shared_ptr<ImageCost> cost;   // of who loaded it; null: it is shared
  uint32_t kernel_count = 0;
  bool shared = false;  // in the cache: others may use it
  bool prints = false;  // its kernels may print: their launches take turns (printer.h)
  bool usable = false;  // a kernel or variable was found: looking up others waits for nobody
  std::map<std::string, KernelFacts, std::less<>> kernels;
  std::string names;  // of all kernels, each ended by a NUL, once somebody asked
  uint32_t name_count = 0;
  bool has_names = false;
  std::shared_ptr<HostCharge> names_charge;  // of who asked
  // The largest dynamic shared memory that any session asked for, by kernel.
  std::map<CUkernel, int> max_dynamic_shared;
  // Its texture and surface references, once one is asked for. Never of a shared library.
  std::shared_ptr<References> references;
};
using LibraryRef = std::shared_ptr<LoadedLibrary>;

class LibraryCache {
 public:
  // Held for tenants to come, beside what tenants have loaded: the images of a program that uses all of
  // PyTorch's libraries take some 100 MiB.
  static constexpr uint64_t kMaxBytes = uint64_t{512} << 20;

  explicit LibraryCache(std::shared_ptr<DomainBudget> budget);

  // SHA-256 where the processor is fast at it, which is also when tenants ask by it. Elsewhere
  // SipHash, keyed by a secret of this process: nobody can name such a hash, or make two images that
  // collide. Safe from any thread.
  ImageHash Hash(std::span<const uint8_t> image) const;

  struct Known {
    ImageRef image;      // null: it is not known
    LibraryRef library;  // null: every tenant loads its own
  };
  Known Find(const ImageHash& hash, uint64_t now_ns);
  // `library` is shared from now on unless the image has variables. What is known already stays; what
  // there is no room for, beside images that are in use though forgotten here, is not remembered.
  void Add(const ImageHash& hash, ImageRef image, const LibraryRef& library, uint64_t now_ns);
  // Lets go of loaded libraries that nobody has used for a while, and later of their images.
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
  uint64_t bytes_ = 0;
};

}  // namespace gpuloom::executor
