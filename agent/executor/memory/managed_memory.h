// SPDX-License-Identifier: Apache-2.0
// The part of a session for managed memory that migrates (docs/design/managed-memory.md): what the device finds at the
// program's addresses for it, which is either physical memory or pages of the session's arena. Ring thread only. Owns
// the mappings, and shares the physical memory; `device_memory` is made before it and outlives it. Addresses that are
// still to be unmapped when the session has ended are HostMemory's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "agent/executor/memory/device_memory.h"
#include "agent/executor/session/session_port.h"
#include "proto/wire/managed_memory_commands.h"

namespace gpuloom::executor {

class ManagedMemory final : public Part {
 public:
  ManagedMemory(SessionPort* port, DeviceMemory* device_memory);
  ~ManagedMemory();

  void On(wire::Tag<wire::ManagedSpace>, const wire::ManagedSpace::Request&, const wire::Record&);
  void On(wire::Tag<wire::ManagedMap>, const wire::ManagedMap::Request&, const wire::Record&);
  void On(wire::Tag<wire::ManagedUnmap>, const wire::ManagedUnmap::Request&, const wire::Record&);

  // Call when the session ends.
  void End();
  // After End: takes one piece away, before device memory is returned; returns true if that was the last.
  bool RetirePiece();

 private:
  struct Mapping {
    uint64_t size_bytes;
    PhysicalRef memory;  // null: pages of the arena
    uint64_t pages;      // where these lie in the arena
    bool busy = true;    // waiting to be mapped or unmapped, or in use by a worker
  };

  bool Overlaps(uint64_t address, uint64_t size_bytes) const;
  void Map(Caller caller, uint64_t address);
  void MapWaiting();
  void OnMapped(Caller caller, uint64_t address, CUresult result);
  void UnmapPages(uint64_t address, uint64_t size_bytes);
  void UnmapPhysical(uint64_t address, const Mapping& mapping, std::function<void()> done);

  DeviceMemory& device_memory_;
  std::map<uint64_t, Mapping> mappings_;  // by address
  // Until nothing else is at the address any more.
  std::deque<std::pair<Caller, uint64_t>> waiting_;
};

}  // namespace gpuloom::executor
