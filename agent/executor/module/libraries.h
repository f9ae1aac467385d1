// SPDX-License-Identifier: Apache-2.0
// The part of a session for libraries that are loaded, and for what was looked up in them: kernels, variables,
// texture references, all of which go with the library. Ring thread only.
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
  std::shared_ptr<Loading> placing;  // its managed variables have no place yet
  std::vector<ManagedImage::Services> managed;
  std::vector<wire::KernelId> kernels;
  std::vector<uint64_t> globals;  // where they begin
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

  Library* FindLibrary(wire::LibraryId id_untrusted);  // refuses when there is none
  // nullptr: what was looked up was unloaded meanwhile, and another may have got the id.
  Library* FindLoaded(wire::LibraryId id, const LibraryRef& loaded);
  // Runs `work`, a look-up, as soon as that disturbs nobody. True when it has put the library on the device for
  // certain: later look-ups wait for nobody. `done` may come after the session's end.
  using LookUp = std::function<bool()>;
  void UseLibrary(const LibraryRef& library, LookUp work, std::function<void()> done);
  // Asked for a kernel already, so that text is compiled.
  void UseCompiled(const LibraryRef& library, LookUp work, std::function<void()> done);

  // At the end, in this order, each a piece; true when that was the last.
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
