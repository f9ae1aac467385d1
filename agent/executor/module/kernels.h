// SPDX-License-Identifier: Apache-2.0
// The part of a session for kernels, which are looked up and loaded before the tenant may launch
// them. Results are kept in the libraries' table. Ring thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/executor/module/libraries.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class Kernels final : public Part {
 public:
  Kernels(SessionPort* port, Libraries* libraries)
      : Part(port), libraries_(libraries), kernels_(libraries->kernels()) {}

  void On(wire::Tag<wire::KernelGet>, const wire::KernelGet::Request&, const wire::Record&);
  void On(wire::Tag<wire::KernelParams>, const wire::KernelParams::Request&, const wire::Record&);
  void On(wire::Tag<wire::KernelSetAttribute>, const wire::KernelSetAttribute::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::OccupancyBlocks>, const wire::OccupancyBlocks::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::OccupancySharedMemory>, const wire::OccupancySharedMemory::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::OccupancyClusters>, const wire::OccupancyClusters::Request&,
          const wire::Record&);

  Kernel* FindKernel(wire::KernelId id_untrusted);  // refuses if there is none
  // Empty if the kernel is none of the session's. Searches all of them: for error messages.
  std::string NameOf(CUkernel kernel) const;

 private:
  struct KernelLookup;
  void FinishLookup(Caller caller, const wire::KernelGet::Request& request,
                    const std::shared_ptr<KernelLookup>& lookup, const LibraryRef& loaded);
  // `facts` are owned by the library and live as long as it does.
  void RefuseKernel(Caller caller, const wire::KernelGet::Request& request, CUresult result);
  void AnswerKernel(Caller caller, const wire::KernelGet::Request& request,
                    const LibraryRef& loaded, const KernelFacts& facts);
  // Determines whether its launches may be grouped with others (chunk.h).
  void SetCollects(Kernel* kernel, const int32_t* attributes) const;
  // Answers the command with what `ask(driver, T* answer)` returns and sets, on a worker. The kernel's function stays
  // loaded meanwhile. occupancy.cc
  template <typename C, typename T, typename F>
  void AskDriver(const Kernel& kernel, const wire::Record& record, F ask);

  Libraries* const libraries_;
  KernelTable& kernels_;
};

}  // namespace gpuloom::executor
