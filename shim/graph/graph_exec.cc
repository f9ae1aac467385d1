// SPDX-License-Identifier: Apache-2.0
// Executable graphs through the executor: what proto/libcuda/graph/exec.h asks of a driver.
#include <stdlib.h>

#include <algorithm>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/exec.h"
#include "shim/event/event.h"
#include "shim/graph/graph_block.h"
#include "shim/launch/system_atomics.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/migration.h"
#include "shim/module/kernel.h"
#include "shim/process/log.h"
#include "shim/session/session.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// What launches of the graph may still use; freed when the last of them is done.
struct Leftover {
  wire::StreamId stream;
  wire::Ticket ticket;
  LocalStep step;
};

struct RemoteGraph {
  wire::GraphId id;
  Growing<LocalStep> steps;
  Growing<CUevent> records;  // events that a launch records
  uint32_t host_functions;   // that a launch runs
  bool may_wait;             // a launch may wait for the program
  // A kernel that has, or had before an update, atomic operations of the system's scope; or null.
  const void* system_atomics;
  // Its latest launch; launches of one graph run one after the other.
  wire::StreamId stream;
  wire::Ticket ticket;
};

// Guarded by GraphLock, as all of this file.
struct Ids {
  uint32_t last = 0;
  Growing<uint32_t> free;
};
struct Graphs {
  Ids ids;
  Ids reservations;
  Growing<Leftover> leftovers;
};
constinit Graphs graphs;

bool TakeId(Ids* ids, uint32_t limit, uint32_t* id) {
  if (ids->free.count() != 0) {
    *id = ids->free[ids->free.count() - 1];
    ids->free.Remove(ids->free.count() - 1);
    return true;
  }
  // Ids from 1 on: 0 is none.
  if (ids->last + 1 >= limit) return false;
  *id = ++ids->last;
  return true;
}
// An id that cannot be noted is lost, which does no harm: there are many.
void GiveId(Ids* ids, uint32_t id) { (void)ids->free.Push(id); }

// The id is free only if the command is in the ring: what comes later finds it unused at the
// executor.
void DropReservation(wire::ReservationId reservation) {
  if (session.Post<wire::ConditionsDrop>({reservation}) == CUDA_SUCCESS) {
    GiveId(&graphs.reservations, static_cast<uint32_t>(reservation));
  }
}

// Called where graphs are made, changed and destroyed, so that what a graph has left does not wait
// for a particular call.
void SweepLeftovers() {
  for (size_t i = graphs.leftovers.count(); i-- > 0;) {
    Leftover& leftover = graphs.leftovers[i];
    if (!session.Done(leftover.stream, leftover.ticket)) continue;
    FreeLocalStep(&leftover.step);
    graphs.leftovers.Remove(i);
  }
}

// Frees what a step holds once nothing can run it: launches up to the graph's latest may still use
// it.
void Retire(const RemoteGraph& remote, const LocalStep& step) {
  if (step.function == 0 && step.staged == nullptr) return;
  LocalStep gone = step;
  if (session.Done(remote.stream, remote.ticket)) {
    FreeLocalStep(&gone);
    return;
  }
  // If this fails it is never freed, which is safe.
  (void)graphs.leftovers.Push({remote.stream, remote.ticket, gone});
}

void FreeRemote(RemoteGraph* remote) {
  for (const LocalStep& step : remote->steps) Retire(*remote, step);
  remote->steps.Free();
  remote->records.Free();
  free(remote);
}

// Sends a graph's block: in the ring if it is small, otherwise through the arena.
template <wire::Command C>
CUresult Send(typename C::Request request, const GraphBlock& block,
              wire::HostPtr C::Request::*where, uint64_t C::Request::*size) {
  typename C::Reply reply;
  if (block.size_bytes() <= wire::kMaxInlineGraphBytes) {
    return session.Call<C>(request, &reply, block.data(),
                           static_cast<uint32_t>(block.size_bytes()));
  }
  uint64_t space;
  CUDA_RETURN_IF_ERROR(TakeTransferSpace(block.size_bytes(), &space));
  memcpy(reinterpret_cast<void*>(space), block.data(), block.size_bytes());
  request.*where = wire::HostPtr{space};
  request.*size = block.size_bytes();
  const CUresult result = session.Call<C>(request, &reply);
  GiveTransferSpace(space);
  return result;
}

void NoteSystemAtomics(const graph::NodeParams& params, RemoteGraph* remote) {
  if (params.type != CU_GRAPH_NODE_TYPE_KERNEL) return;
  const Kernel* kernel = FindKernel(params.kernel.handle());
  if (kernel != nullptr && kernel->system_atomics) remote->system_atomics = kernel;
}

RemoteGraph* RemoteOf(graph::Exec* exec) { return static_cast<RemoteGraph*>(exec->driver); }

// Lists the events that the graph will record once `changes` are made, in the order of the steps. A
// launch notes for each that it was recorded, so that queries need not ask.
CUresult ListRecords(const graph::Exec& exec, const graph::StepChange* changes, uint32_t count,
                     Growing<CUevent>* records) {
  Growing<uint32_t> places;  // of the records
  bool room = true;
  for (uint32_t place = 0; place < exec.definition.steps.count(); ++place) {
    const graph::NodeParams& params = exec.definition.steps[place].node->params;
    if (params.type != CU_GRAPH_NODE_TYPE_EVENT_RECORD) continue;
    room = room && places.Push(place) && records->Push(params.event);
  }
  for (uint32_t i = 0; room && i < count; ++i) {
    if (changes[i].params->type != CU_GRAPH_NODE_TYPE_EVENT_RECORD) continue;
    const uint32_t* at = std::lower_bound(places.begin(), places.end(), changes[i].place);
    (*records)[static_cast<size_t>(at - places.begin())] = changes[i].params->event;
  }
  places.Free();
  return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

namespace graph {

CUresult DriverInstantiate(Exec* exec, Node** culprit) {
  SweepLeftovers();
  auto* remote = static_cast<RemoteGraph*>(calloc(1, sizeof(RemoteGraph)));
  if (remote == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t id = 0;
  GraphBlock block;
  const Step* blamed = nullptr;
  CUresult result = block.MakeDefinition(*exec, &remote->steps, &blamed);
  if (blamed != nullptr) *culprit = blamed->node;
  if (result == CUDA_SUCCESS) result = ListRecords(*exec, nullptr, 0, &remote->records);
  if (result == CUDA_SUCCESS && !TakeId(&graphs.ids, wire::kMaxGraphs, &id))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    remote->id = wire::GraphId{id};
    for (const LocalStep& step : remote->steps) remote->host_functions += step.function != 0;
    for (const Step& step : exec->definition.steps) {
      const CUgraphNodeType type = step.node->params.type;
      remote->may_wait |=
          type == CU_GRAPH_NODE_TYPE_HOST || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
      NoteSystemAtomics(step.node->params, remote);
    }
    const bool priorities = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
    using C = wire::GraphInstantiate;
    result = Send<C>({remote->id, priorities ? wire::kGraphUseNodePriority : 0, {}, 0}, block,
                     &C::Request::definition, &C::Request::definition_bytes);
    if (result != CUDA_SUCCESS) GiveId(&graphs.ids, id);
    if (result == CUDA_ERROR_NOT_SUPPORTED && exec->definition.bodies.count() != 0) {
      Log(LogLevel::kWarn,
          "cuda: a graph with conditional nodes can be instantiated again with other parameters, "
          "not with other nodes, edges or attributes");
    }
  }
  if (result != CUDA_SUCCESS) {
    FreeRemote(remote);
    return result;
  }
  exec->driver = remote;
  return CUDA_SUCCESS;
}

// A graph's conditions belong to a reservation, which the first of them creates.
CUresult DriverMakeCondition(Graph* root, unsigned default_value, unsigned flags,
                             CUgraphConditionalHandle* handle) {
  const bool is_first = root->reservation == nullptr;
  uint32_t id = 0;
  if (is_first && !TakeId(&graphs.reservations, wire::kMaxReservations, &id)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const wire::ReservationId reservation = is_first ? wire::ReservationId{id} : ReservationOf(root);
  const bool assigns = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  wire::ConditionCreate::Reply reply;
  const CUresult result = session.Call<wire::ConditionCreate>(
      {reservation, default_value, assigns ? wire::kConditionAssignsDefault : 0, 0}, &reply);
  if (result != CUDA_SUCCESS) {
    // The executor may have created the reservation nevertheless.
    if (is_first) DropReservation(reservation);
    return result;
  }
  root->reservation = reinterpret_cast<void*>(uintptr_t{static_cast<uint32_t>(reservation)});
  *handle = reply.handle;
  return CUDA_SUCCESS;
}

void DriverDropConditions(Graph* root) {
  DropReservation(ReservationOf(root));
  root->reservation = nullptr;
}

// All or nothing: the executor's graph changes first, then what this process keeps for it. Launches
// that were sent before use the old functions and memory, so those are retired and not freed.
CUresult DriverUpdate(Exec* exec, const StepChange* changes, uint32_t count, uint32_t* failed) {
  SweepLeftovers();
  RemoteGraph* remote = RemoteOf(exec);
  GraphBlock block;
  Growing<LocalStep> replaced;
  Growing<CUevent> records;
  bool records_change = false;
  for (uint32_t i = 0; i < count; ++i) {
    records_change |= changes[i].params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  }
  CUresult result = block.MakeUpdate(remote->steps, changes, count, &replaced, failed);
  if (result == CUDA_SUCCESS && records_change) {
    result = ListRecords(*exec, changes, count, &records);
  }
  if (result == CUDA_SUCCESS) {
    using C = wire::GraphUpdate;
    result = Send<C>({remote->id, 0, {}, 0}, block, &C::Request::update, &C::Request::update_bytes);
  }
  if (result == CUDA_SUCCESS) {
    for (uint32_t i = 0; i < count; ++i) {
      NoteSystemAtomics(*changes[i].params, remote);
      LocalStep& step = remote->steps[changes[i].place];
      Retire(*remote, step);
      step = replaced[i];
    }
    if (records_change) {
      const Growing<CUevent> old = remote->records;
      remote->records = records;
      records = old;
    }
  } else {
    for (LocalStep& step : replaced) FreeLocalStep(&step);
  }
  replaced.Free();
  records.Free();
  return result;
}

CUresult DriverLaunch(Exec* exec, CUstream handle, DefaultStream null_means) {
  RemoteGraph* remote = RemoteOf(exec);
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  // Before anything is sent: a launch that records a destroyed event would fail at the executor,
  // and be reported only later.
  for (const CUevent event : remote->records) {
    if (FindEvent(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  }
  // Before the hold below, as both take the same lock.
  const WaitForProgram waits(remote->may_wait);
  CUDA_RETURN_IF_ERROR(waits.result());
  if (remote->host_functions != 0) {
    // Before the launch is sent: the executor may ask for them at once.
    CUDA_RETURN_IF_ERROR(ExpectHostFunctions(remote->host_functions));
  }
  wire::Ticket ticket{0};
  CUresult result;
  {
    const MigrationHold hold;
    result = hold.result();
    if (result == CUDA_SUCCESS) {
      result = session.PostOnStream<wire::GraphLaunch>(
          stream, 0,
          [&](wire::GraphLaunch::Request& request, uint8_t*) {
            request = {remote->id, stream};
          },
          &ticket);
    }
  }
  if (result != CUDA_SUCCESS) {
    UnexpectHostFunctions(remote->host_functions);
    return result;
  }
  if (remote->system_atomics != nullptr) [[unlikely]] {
    // Its library may have been unloaded meanwhile.
    const Kernel* kernel = FindKernel(remote->system_atomics);
    if (kernel != nullptr) ReportSystemAtomics(*kernel);
  }
  remote->stream = stream;
  remote->ticket = ticket;
  for (const CUevent event : remote->records) NoteRecord(event, stream, ticket);
  return CUDA_SUCCESS;
}

CUresult DriverUpload(Exec* exec, CUstream handle, DefaultStream null_means) {
  RemoteGraph* remote = RemoteOf(exec);
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  return session.PostOnStream<wire::GraphUpload>(
      stream, 0, [&](wire::GraphUpload::Request& request, uint8_t*) {
        request = {remote->id, stream};
      });
}

// Launches of one graph run one after the other, so the latest is the last.
bool DriverDone(const Exec& exec) {
  const auto* remote = static_cast<const RemoteGraph*>(exec.driver);
  return session.Done(remote->stream, remote->ticket);
}
void DriverFinish(Exec* exec) {
  const RemoteGraph* remote = RemoteOf(exec);
  (void)session.WaitFor(remote->stream, remote->ticket);
}

void DriverDestroy(Exec* exec) {
  SweepLeftovers();
  RemoteGraph* remote = RemoteOf(exec);
  exec->driver = nullptr;
  if (session.Post<wire::GraphDestroy>({remote->id}) == CUDA_SUCCESS) {
    GiveId(&graphs.ids, static_cast<uint32_t>(remote->id));
  }
  FreeRemote(remote);
}

}  // namespace graph
}  // namespace gpuloom
