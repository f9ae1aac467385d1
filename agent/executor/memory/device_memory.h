// SPDX-License-Identifier: Apache-2.0
// The part of a session for device memory: requested from the scheduler in granules (grant.cc),
// divided by DeviceSpace, kept for a while after it is freed (KeptMemory), returned (give_back.cc),
// accessed by id and mapped by the tenant (virtual_memory.cc), shared through pools
// (shared_pool.cc). It knows which device addresses commands may name. Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/executor/memory/clears.h"
#include "agent/executor/memory/device_space.h"
#include "agent/executor/memory/kept_memory.h"
#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/range_table.h"
#include "agent/executor/session/session_port.h"
#include "proto/channel/region.h"
#include "proto/control/connection.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Maps all of the memory at reserved addresses, accessible. Leaves nothing behind on failure. Any thread.
[[nodiscard]] CUresult MapWithAccess(const Driver& cuda, CUdevice device,
                                     CUmemGenericAllocationHandle handle, uint64_t size_bytes,
                                     CUdeviceptr at);

class DeviceMemory final : public Part {
 public:
  explicit DeviceMemory(SessionPort* port);
  ~DeviceMemory();
  // Reserves the tenant's device address range; once, before the first command. Returns false with a message.
  [[nodiscard]] bool Reserve(std::string* error);

  void On(wire::Tag<wire::MemAlloc>, const wire::MemAlloc::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemFree>, const wire::MemFree::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemFreeLater>, const wire::MemFreeLater::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemInfo>, const wire::MemInfo::Request&, const wire::Record&);
  void On(wire::Tag<wire::AddressSpace>, const wire::AddressSpace::Request&, const wire::Record&);
  void On(wire::Tag<wire::PhysicalCreate>, const wire::PhysicalCreate::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::PhysicalRelease>, const wire::PhysicalRelease::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::PhysicalExport>, const wire::PhysicalExport::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::PhysicalImport>, const wire::PhysicalImport::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::MemExport>, const wire::MemExport::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemMap>, const wire::MemMap::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemUnmap>, const wire::MemUnmap::Request&, const wire::Record&);
  void On(wire::Tag<wire::MemSetAccess>, const wire::MemSetAccess::Request&, const wire::Record&);
  void On(wire::Tag<wire::PoolShare>, const wire::PoolShare::Request&, const wire::Record&);
  void On(wire::Tag<wire::PoolOpen>, const wire::PoolOpen::Request&, const wire::Record&);
  void On(wire::Tag<wire::PoolClose>, const wire::PoolClose::Request&, const wire::Record&);
  void On(wire::Tag<wire::PoolPut>, const wire::PoolPut::Request&, const wire::Record&);
  void On(wire::Tag<wire::PoolTake>, const wire::PoolTake::Request&, const wire::Record&);

  // Returns true if the tenant may name the whole range.
  bool OwnsDevice(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const;
  // Adds a range that the tenant may name, too: a variable of its libraries, or managed memory. Returns false if it
  // overlaps another one.
  [[nodiscard]] bool AddNamed(uint64_t address, uint64_t size_bytes) {
    return named_.Add(address, size_bytes);
  }
  // The tenant may not name the range any more, but earlier work may still use it.
  void RetireNamed(uint64_t address) {
    (void)leaving_.Add(address, named_.SizeAt(address));
    named_.Remove(address);
  }
  void ForgetNamed(uint64_t address) { leaving_.Remove(address); }
  // Also true for host memory, and for what the tenant may not name any more but earlier work still uses.
  bool IsStillThere(uint64_t address, uint64_t size_bytes, bool to_write) const;

  // Physical memory that other parts map. FindPhysical refuses if there is none.
  PhysicalRef* FindPhysical(wire::PhysicalId id_untrusted);
  void Hold(const PhysicalRef& memory) { ++memory->holders[id()]; }
  // Releases one hold. Calls `done` when the memory is kept or returned to the scheduler.
  void Drop(const PhysicalRef& memory, std::function<void()> done);
  // The same for a session that has ended: ReturnMemory releases the hold, once the jobs before it in the memory lane
  // are done.
  void LeaveHold(PhysicalRef memory) { left_holds_.push_back(std::move(memory)); }

  // Returns memory kept for too long to the scheduler. Call about once a second.
  void GiveBackOld(uint64_t now_ns);
  bool HasKept() const { return !kept_.empty(); }
  // Returns all kept memory, and tells the scheduler once it is returned, with that of libraries that were unloaded.
  void Reclaim(uint64_t reclaim_id);
  // Call when a library's memory comes back once the device is idle (Quiet::Retire).
  void NoteUnloading() { unloading_ = true; }

  // See Clears.
  bool SubmitClears() { return clears_.Submit(); }
  arbiter::Work ClearsReady() const { return clears_.Ready(); }
  void AddHead(std::vector<HeadOfStream>* heads) const { clears_.AddHead(heads); }

  // Call when the session ends.
  void End();
  // After End, in this order, each drops one piece; returns true if that was the last.
  bool ReturnMemory();
  bool LeaveToOthers();
  void ReturnAddresses(std::function<void()> done);
  // The tables are as large as the tenant has made them, so a worker frees them.
  void DropTables();

 private:
  // device_memory.cc
  void RefuseAddresses(Caller caller, uint64_t size_bytes);
  void AskForSlab();
  void ServeSmall(CUresult failure);
  void FreeAllocation(uint64_t address, wire::Ticket ticket, std::function<void()> done);
  void AnswerMemoryInfo(Caller caller);

  // grant.cc
  struct NewMemory;
  using OnMemory = std::function<void(CUresult, const PhysicalRef&)>;
  void MapNew(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done);
  void MapHeld(const PhysicalRef& memory, uint64_t address, std::function<void(CUresult)> done);
  void ObtainUnmapped(uint64_t size_bytes, OnMemory done);
  void Obtain(uint64_t address, uint64_t size_bytes, OnMemory done);
  void OnGranted(uint64_t address, uint64_t size_bytes, control::Incoming* answer, OnMemory done);
  void Arrive(NewMemory& memory, const OnMemory& done);

  // give_back.cc
  void Unmap(uint64_t address, PhysicalRef memory, std::function<void()> done);
  void JudgeUnmap(CUresult result);
  bool MayKeep(const Physical& memory) const;
  bool ReleaseHold(const PhysicalRef& memory);
  void GiveBack(std::vector<KeptMemory::Block> blocks, std::function<void()> done);
  void GiveBackKept(std::vector<KeptMemory::Block> blocks);
  void BeginReturn();
  void EndReturn();
  void OnAllReturned();
  void LeaveOne(const PhysicalRef& memory);

  // shared_pool.cc
  SharedPoolRef* FindPool(wire::PoolId id_untrusted);  // refuses if there is none

  // virtual_memory.cc
  void ChangeAccess(Caller caller, uint64_t address, uint64_t size_bytes, uint32_t flags);

  Clears clears_;
  DeviceSpace space_;
  bool address_reserved_ = false;
  std::map<uint64_t, PhysicalRef> blocks_;  // mapped at the spans of space_
  channel::Range reservable_;               // the tenant's own part of the device range
  IdTable<wire::PhysicalId, PhysicalRef, wire::kMaxPhysicals> physicals_;  // null: pending
  std::map<uint64_t, MappedRange> mappings_;
  IdTable<wire::PoolId, SharedPoolRef, wire::kMaxSharedPools> pools_;
  KeptMemory kept_;             // what of it is mapped is in blocks_, too
  uint64_t freeing_bytes_ = 0;  // of allocations waiting for work before they are freed
  uint32_t returning_ = 0;      // pieces of memory being returned to the scheduler
  bool unloading_ = false;      // since the last Reclaim
  const std::shared_ptr<void> alive_ =
      std::make_shared<char>();       // for what may be called after the end
  std::vector<uint64_t> reclaims_;    // the scheduler's, answered when nothing is being returned
  std::deque<Caller> asking_memory_;  // callers that are answered at the same time
  RangeTable accessible_;             // the mapped ranges that commands may name
  std::deque<std::pair<Caller, uint64_t>> small_waiting_;  // for a slab; sizes
  bool slab_coming_ = false;
  RangeTable named_;                     // added by other parts
  RangeTable leaving_;                   // of those, the ranges that go after earlier work
  std::vector<PhysicalRef> left_holds_;  // left by other parts when the session ended
};

}  // namespace gpuloom::executor
