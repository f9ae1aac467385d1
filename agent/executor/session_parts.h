// The parts of a session (docs/design/executor-parts.md), in the order in which they are made: each may
// call those before it. For the session's own files.
#pragma once

#include "agent/executor/arrays.h"
#include "agent/executor/context_limits.h"
#include "agent/executor/copies.h"
#include "agent/executor/device_memory.h"
#include "agent/executor/events.h"
#include "agent/executor/green_contexts.h"
#include "agent/executor/host_functions.h"
#include "agent/executor/kernels.h"
#include "agent/executor/libraries.h"
#include "agent/executor/library_loader.h"
#include "agent/executor/links.h"
#include "agent/executor/memory_operations.h"
#include "agent/executor/pinned_memory.h"
#include "agent/executor/session.h"
#include "agent/executor/tensor_maps.h"
#include "agent/executor/texture_references.h"
#include "agent/executor/unsupported_calls.h"
#include "proto/wire/dispatch.h"

namespace gpuloom::executor {

struct Session::Parts {
  explicit Parts(Session* of) : session(*of) {}

  Session& session;
  ContextLimits context_limits{&session};
  TensorMaps tensor_maps{&session};
  UnsupportedCalls unsupported_calls{&session};
  HostFunctions host_functions{&session};
  GreenContexts green_contexts{&session};
  Links links{&session};
  Events events{&session};
  PinnedMemory pinned_memory{&session};
  Arrays arrays{&session,
                [this](const ArrayRef& array) { texture_references.LetReferencesGo(array); }};
  DeviceMemory device_memory{&session};
  MemoryOperations memory_operations{&session, &device_memory};
  Copies copies{&session, &device_memory, &arrays};
  Libraries libraries{&session, &device_memory};
  LibraryLoader library_loader{&session, &libraries};
  Kernels kernels{&session, &libraries};
  TextureReferences texture_references{&session, &libraries, &arrays};

  // To the part that handles the command.
  template <wire::Command C>
  void On(wire::Tag<C> tag, const typename C::Request& request, const wire::Record& record) {
    wire::PartWith<C>(session, context_limits, tensor_maps, unsupported_calls, host_functions,
                      green_contexts, links, events, pinned_memory, arrays, device_memory,
                      memory_operations, copies, libraries, library_loader, kernels,
                      texture_references)
        .On(tag, request, record);
  }
};

}  // namespace gpuloom::executor
