// SPDX-License-Identifier: Apache-2.0
// Every range of this process's addresses that the driver knows: device memory, mapped physical
// memory, host memory it allocated or registered. Kernels and copies look an address up here before
// they touch anything.
//
// Ranges never overlap. Removing one hides it from kernels at once; its pages are unmapped later
// (retirement.h). One table for the whole process, all devices and contexts, because they share the
// address space. Never destroyed. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/softgpu/exec/machine/address_space.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Advice;
struct Context;
struct Device;
struct FilePiece;
struct Physical;
struct PoolShare;

enum class RegionKind {
  kDevice,      // cuMemAlloc, cuMemAllocAsync
  kModule,      // variables of a module
  kMapped,      // cuMemMap
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister: the pages are the program's
  kManaged,     // cuMemAllocManaged
  kArray,       // cuArrayCreate: the program has no address for it
};

struct Region {
  uint64_t begin = 0;
  uint64_t asked_bytes = 0;   // as requested, and as reported
  uint64_t size_bytes = 0;    // what may be touched
  uint64_t backed_bytes = 0;  // as mapped: whole pages
  RegionKind kind = RegionKind::kDevice;
  Device* device = nullptr;    // the one whose memory it is; nullptr for host memory
  Context* context = nullptr;  // the one that it ends with; nullptr for cuMemMap
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  unsigned flags = 0;      // as given to cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
  uint64_t buffer_id = 0;  // unique in this process, given by Add
  std::shared_ptr<Physical> physical;  // of kMapped
  std::shared_ptr<PoolShare> share;    // of the pool that it came from, or nullptr
  std::shared_ptr<FilePiece> piece;    // of the file of a pool that processes share, or nullptr
  std::shared_ptr<Advice> advice;      // of kManaged
  uint64_t charged_bytes = 0;          // of the device's memory
  bool synchronous = false;            // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  bool leaving = false;                // freed, but a stream still has work with it

  [[nodiscard]] uint64_t end() const { return begin + size_bytes; }
  [[nodiscard]] bool on_device() const { return device != nullptr; }
};

class AddressTable final : public AddressSpace {
 public:
  static AddressTable& Instance();

  // The machine's questions (exec/machine/address_space.h).
  [[nodiscard]] Range Find(uint64_t address) const override;
  [[nodiscard]] uint64_t generation() const override { return generation_.load(); }
  [[nodiscard]] std::shared_ptr<const Texture> FindTexture(uint64_t handle) const override;
  [[nodiscard]] std::shared_ptr<const Image> FindSurface(uint64_t handle) const override;

  // False when the region would overlap another one.
  [[nodiscard]] bool Add(Region region);
  // Removes and returns the region that begins exactly at `begin` and satisfies the condition.
  template <typename Condition>
  std::optional<Region> Take(uint64_t begin, const Condition& condition) {
    const WriterLock lock(mutex_);
    const auto found = regions_.find(begin);
    if (found == regions_.end() || !condition(found->second)) return std::nullopt;
    Region region = std::move(found->second);
    regions_.erase(found);
    generation_.fetch_add(1);
    return region;
  }
  // Removes and returns all regions that satisfy the condition.
  template <typename Condition>
  std::vector<Region> TakeIf(const Condition& condition) {
    std::vector<Region> taken;
    const WriterLock lock(mutex_);
    for (auto at = regions_.begin(); at != regions_.end();) {
      if (!condition(at->second)) {
        ++at;
        continue;
      }
      taken.push_back(std::move(at->second));
      at = regions_.erase(at);
    }
    if (!taken.empty()) generation_.fetch_add(1);
    return taken;
  }

  // The region that holds the address.
  [[nodiscard]] std::optional<Region> FindRegion(uint64_t address) const;
  // All regions that touch [begin, begin + size_bytes), in order.
  [[nodiscard]] std::vector<Region> Touching(uint64_t begin, uint64_t size_bytes) const;
  // Whether all of [begin, begin + size_bytes) may be read (written). Neighbouring regions count as
  // one.
  [[nodiscard]] bool Covers(uint64_t begin, uint64_t size_bytes, bool write) const;
  void SetAccess(uint64_t begin, CUmemAccess_flags access);
  // False when nothing lies at the address.
  [[nodiscard]] bool SetSynchronous(uint64_t address, bool on);
  // Marks the allocation as freed by name, though it stays until a stream comes past that point:
  // its pool does not have it any more. False when no allocation begins there, or it was freed
  // before.
  [[nodiscard]] bool SetLeaving(uint64_t begin);

 private:
  [[nodiscard]] const Region* FindLocked(uint64_t address) const GPULOOM_REQUIRES_SHARED(mutex_);

  mutable SharedMutex mutex_;
  std::map<uint64_t, Region> regions_ GPULOOM_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{1};
  uint64_t next_buffer_id_ GPULOOM_GUARDED_BY(mutex_) = 1;
};

}  // namespace gpuloom::softgpu
