// A green context of this executor's driver: a part of the multiprocessors, and the default stream's barrier among
// its streams. Shared by the session that made it and its streams; making and destroying one may
// wait for the device, so both happen in quiet moments (quiet.h). Ring thread only.
//
// Kernels are launched in its streams by their CUkernel: the driver then takes the context from
// the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/executor/device.h"
#include "agent/executor/quiet.h"
#include "agent/executor/stream_set.h"
#include "proto/wire/green_commands.h"

namespace gpuloom::executor {

// Of one session. Each takes room in the driver's own memory, which nobody is charged with.
inline constexpr uint32_t kMaxGreenContexts = 64;

struct GreenContext {
  // `live` counts the session's contexts that the driver has, those to be destroyed included.
  GreenContext(Device* of, Quiet* destroys, std::shared_ptr<uint32_t> live);
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  ~GreenContext();

  // Non-blocking to CUDA, as all streams of the executor.
  [[nodiscard]] CUresult MakeStream(int priority, CUstream* stream) const;
  // It must be idle; null is nothing.
  void DestroyStream(CUstream stream) const;

  Device* const device;
  Quiet* const quiet;
  const std::shared_ptr<uint32_t> live_count;
  CUgreenCtx context = nullptr;  // null while it is made
  Barrier barrier;
};
using GreenContextRef = std::shared_ptr<GreenContext>;

// Whether the driver has what green contexts need.
bool HasGreenContexts(const Driver& cuda);

// What a request describes; pure calls of the driver.
CUresult SplitResource(const Driver& cuda, const CUdevResource& resource,
                       const wire::SplitArguments& split, std::vector<CUdevResource>* groups,
                       CUdevResource* remaining);
wire::Multiprocessors MultiprocessorsOf(const CUdevResource& resource);

}  // namespace gpuloom::executor
