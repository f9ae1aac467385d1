// SPDX-License-Identifier: Apache-2.0
// The part of a session for loaded libraries, and for what was looked up in them (kernels,
// variables, texture references), which goes away with the library. Ring thread only.
//
// Owns the three tables, in which the loader, kernels and texture references work, too. A loaded library is shared with
// its kernels, with commands, and with the cache (library_cache.h); it is unloaded by the last of them. `device_memory`
// outlives this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/executor/module/library_cache.h"
#include "agent/executor/module/managed_image.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_objects.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class DeviceMemory;
struct Loading;  // loading.h

struct Library {
  LibraryRef loaded;  // null while it is being loaded
  std::shared_ptr<ImageCost> cost;
  std::shared_ptr<Loading> placing;  // its managed variables have no address yet
  std::vector<ManagedImage::Services> managed;
  std::vector<wire::KernelId> kernels;
  std::vector<uint64_t> globals;  // their addresses
  std::vector<wire::ReferenceId> references;
};
using LibraryTable = IdTable<wire::LibraryId, Library, wire::kMaxLibraries>;
using KernelTable = IdTable<wire::KernelId, Kernel, wire::kMaxKernels>;
using ReferenceTable = IdTable<wire::ReferenceId, Reference, wire::kMaxReferences>;

class Libraries final : public Part {
 public:
  Libraries(SessionPort* port, DeviceMemory* device_memory)
      : Part(port), device_memory_(device_memory) {}

  void On(wire::Tag<wire::LibraryUnload>, const wire::LibraryUnload::Request&, const wire::Record&);
  void On(wire::Tag<wire::LibraryKernels>, const wire::LibraryKernels::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::GlobalGet>, const wire::GlobalGet::Request&, const wire::Record&);

  LibraryTable& libraries() { return libraries_; }
  KernelTable& kernels() { return kernels_; }
  ReferenceTable& references() { return references_; }

  Library* FindLibrary(wire::LibraryId id_untrusted);  // refuses if there is none
  // Returns nullptr if the library was unloaded meanwhile, even if another now has the id.
  Library* FindLoaded(wire::LibraryId id, const LibraryRef& loaded);
  // Runs `work`, a look-up of a variable or reference, as soon as that disturbs no session. `work` returns true if the
  // library is certainly on the device now: later ones then do not wait. `done` may run after the session's end.
  using Lookup = std::function<bool()>;
  void UseLibrary(const LibraryRef& library, Lookup work, std::function<void()> done);
  // The same for a kernel, which is loaded: always in a quiet moment. PTX must have been compiled.
  void LoadCode(const LibraryRef& library, Lookup work, std::function<void()> done);

  // At session end, in this order, each drops one piece; returns true if that was the last.
  bool DropReferences() { return DropPiece(&references_); }
  bool DropKernels() { return DropPiece(&kernels_); }
  bool DropLibraries() { return DropPiece(&libraries_); }

 private:
  void AnswerNames(Caller caller, uint32_t offset_untrusted, const LoadedLibrary& library);

  DeviceMemory* const device_memory_;
  LibraryTable libraries_;
  KernelTable kernels_;
  ReferenceTable references_;
};

}  // namespace gpuloom::executor
