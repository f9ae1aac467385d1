// A green context of this executor's driver: a part of the multiprocessors. Shared by the session that
// made it and its streams. Making one waits for the device, so that happens in a quiet moment
// (quiet.h); destroying one does not, and happens on a worker. Ring thread only.
//
// Kernels are launched in its streams by their CUkernel: the driver then takes the context from
// the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/executor/device.h"
#include "agent/executor/work_pool.h"
#include "proto/wire/green_commands.h"

namespace gpuloom::executor {

// Of one session.
inline constexpr uint32_t kMaxGreenContexts = 64;
// What the driver takes of the device's memory for each (measured); its session is charged.
inline constexpr uint64_t kGreenContextBytes = 4u << 20;

struct GreenContext {
  // `live` counts the session's contexts, those to be destroyed included.
  GreenContext(Device* of, WorkPool* workers, std::shared_ptr<uint32_t> live);
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  ~GreenContext();

  // Non-blocking to CUDA, as all streams of the executor.
  [[nodiscard]] CUresult MakeStream(int priority, CUstream* stream) const;
  // It must be idle; null is nothing.
  void DestroyStream(CUstream stream) const;

  Device* const device;
  WorkPool* const pool;
  const std::shared_ptr<uint32_t> live_count;
  CUgreenCtx context = nullptr;        // null while it is made
  std::function<void()> on_destroyed;  // gives the charge back; empty before it is charged
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
