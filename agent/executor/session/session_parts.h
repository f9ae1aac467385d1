// SPDX-License-Identifier: Apache-2.0
// The parts of a session (docs/design/executor-parts.md), in order of creation: each may call those
// before it. Owned by the session; ring thread only. Only the session's own files include this.
#pragma once

#include "agent/executor/copy/copies.h"
#include "agent/executor/device/context_limits.h"
#include "agent/executor/device/green_contexts.h"
#include "agent/executor/event/events.h"
#include "agent/executor/graph/conditionals.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/image/arrays.h"
#include "agent/executor/image/tensor_maps.h"
#include "agent/executor/image/texture_references.h"
#include "agent/executor/launch/launches.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/memory/managed_memory.h"
#include "agent/executor/memory/pinned_memory.h"
#include "agent/executor/module/kernels.h"
#include "agent/executor/module/libraries.h"
#include "agent/executor/module/library_loader.h"
#include "agent/executor/module/links.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/unsupported_calls.h"
#include "agent/executor/stream/host_function.h"
#include "agent/executor/stream/memory_operations.h"
#include "agent/executor/stream/submission.h"
#include "proto/wire/dispatch.h"

namespace gpuloom::executor {

struct Session::Parts {
  explicit Parts(SessionPort* of) : port(of) {}

  SessionPort* const port;
  ContextLimits context_limits{port};
  TensorMaps tensor_maps{port};
  UnsupportedCalls unsupported_calls{port};
  HostFunctions host_functions{port};
  GreenContexts green_contexts{port};
  Links links{port};
  Events events{port};
  PinnedMemory pinned_memory{port};
  Arrays arrays{port, [this](const ArrayRef& array) { texture_references.UnbindArray(array); }};
  DeviceMemory device_memory{port};
  ManagedMemory managed_memory{port, &device_memory};
  MemoryOperations memory_operations{port, &device_memory};
  HostCopies host_copies{port};
  Copies copies{port, &device_memory, &arrays, &host_copies};
  Libraries libraries{port, &device_memory};
  LibraryLoader library_loader{port, &libraries};
  Kernels kernels{port, &libraries};
  TextureReferences texture_references{port, &libraries, &arrays};
  Conditionals conditions{port};
  Graphs graphs{port,    &host_functions, &host_copies, &memory_operations, &events,
                &arrays, &device_memory,  &libraries,   &conditions};
  Launches launches{port, &kernels};
  Submission submission{port, &copies, &graphs, &launches, &events};

  // Calls the part that handles the command.
  template <wire::Command C>
  void On(wire::Tag<C> tag, const typename C::Request& request, const wire::Record& record) {
    wire::PartWith<C>(launches, copies, submission, events, graphs, device_memory, libraries,
                      library_loader, kernels, texture_references, memory_operations, conditions,
                      arrays, pinned_memory, host_functions, green_contexts, links, context_limits,
                      tensor_maps, unsupported_calls, managed_memory)
        .On(tag, request, record);
  }
};

}  // namespace gpuloom::executor
