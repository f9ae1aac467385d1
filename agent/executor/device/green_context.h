// SPDX-License-Identifier: Apache-2.0
// A green context of this executor's driver: a subset of the multiprocessors. Shared by the session
// that owns it and its streams. Creating one waits for the device, so it is done in a quiet moment
// (quiet.h); none is ever destroyed (spare_greens.h). Ring thread only.
//
// Kernels are launched by their CUkernel: the driver then takes the context from the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/executor/device/spare_greens.h"
#include "proto/cuda/driver.h"
#include "proto/wire/green_context_commands.h"

namespace gpuloom::executor {

class Device;

// Per session: at most this many in use, and as many again unused.
inline constexpr uint32_t kMaxGreenContexts = 64;
// Device memory that the driver takes for each (measured); charged to its session.
inline constexpr uint64_t kGreenContextBytes = 4u << 20;

struct GreenContext {
  // `session_context`: where its session's kernels run; the green context is a part of its
  // multiprocessors.
  GreenContext(Device* of, std::shared_ptr<SessionGreens> session, std::string part,
               CUcontext session_context)
      : device(of), home(std::move(session)), key(std::move(part)), within(session_context) {}
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  ~GreenContext();

  Device* const device;
  const std::shared_ptr<SessionGreens> home;
  const std::string key;
  const CUcontext within;
  MadeGreen made;          // no context until it has been created
  DeviceChargeRef charge;  // null until it is charged
};
using GreenContextRef = std::shared_ptr<GreenContext>;

// Returns true if the driver has the functions that green contexts need.
bool HasGreenContexts(const Driver& cuda);

// Creates a green context from all of `resources`. Waits for the device. After a failure nothing is
// left of it.
CUresult MakeGreen(const Driver& cuda, CUdevice device, std::vector<CUdevResource>* resources,
                   MadeGreen* made);

// Computes what a request describes; the driver calls have no side effects.
CUresult SplitResource(const Driver& cuda, const CUdevResource& resource,
                       const wire::SplitArguments& split, std::vector<CUdevResource>* groups,
                       CUdevResource* remaining);
wire::Multiprocessors MultiprocessorsOf(const CUdevResource& resource);

}  // namespace gpuloom::executor
