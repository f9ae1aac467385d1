// SPDX-License-Identifier: Apache-2.0
// A green context of this executor's driver: a part of the multiprocessors. Shared by the session that
// has it and its streams. Making one waits for the device, so that happens in a quiet moment
// (quiet.h); none is destroyed (spare_greens.h). Ring thread only.
//
// Kernels are launched in its streams by their CUkernel: the driver then takes the context from
// the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/device/spare_greens.h"
#include "proto/wire/green_context_commands.h"

namespace gpuloom::executor {

// Of one session: in use, and besides as many that are not.
inline constexpr uint32_t kMaxGreenContexts = 64;
// What the driver takes of the device's memory for each (measured); its session is charged.
inline constexpr uint64_t kGreenContextBytes = 4u << 20;

struct GreenContext {
  GreenContext(Device* of, std::shared_ptr<SessionGreens> session, std::string part)
      : device(of), home(std::move(session)), key(std::move(part)) {}
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  ~GreenContext();

  // Non-blocking to CUDA, as all streams of the executor.
  [[nodiscard]] CUresult MakeStream(int priority, CUstream* stream) const;

  Device* const device;
  const std::shared_ptr<SessionGreens> home;
  const std::string key;
  MadeGreen made;                     // no context while it is made
  SessionGreens::GiveBack give_back;  // empty before it is charged
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
