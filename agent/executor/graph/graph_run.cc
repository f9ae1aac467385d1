// SPDX-License-Identifier: Apache-2.0
// Graphs at CUDA: launched, asked for their host functions, let go at the session's end.
#include <algorithm>
#include <optional>

#include "agent/executor/device/device.h"
#include "agent/executor/graph/graph_waits.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/stream/host_functions.h"
#include "agent/executor/stream/stand_in.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// A graph whose session ends has so long to come to its next wait.
constexpr uint64_t kLetGoEveryNs = 2'000'000;
constexpr size_t kLetGoAtATime = 64;  // places
// Functions of running graphs that are looked at in a round.
constexpr size_t kCallsAtATime = 1024;

}  // namespace

bool Graphs::MayLaunchGraph(const GraphWork& work, wire::Ticket ticket) const {
  if (!work.graph->MayLaunch(ticket)) return false;
  const uint32_t waits = work.upload ? 0 : work.graph->waits_at_once();
  if (waits == 0) return true;
  return services_.graphs->waits + waits <= kMostGraphWaits &&
         (graph_waits_.at_once == 0 || graph_waits_.at_once + waits <= kMostSessionGraphWaits);
}

CUresult Graphs::SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work) {
  const Driver& cuda = services_.device->cuda();
  const GraphRef graph = work.graph;
  CUresult result = CUDA_SUCCESS;
  uint32_t waits = 0;
  if (graph->MayWait() && graph->in_flight == 0) graph_waits_.graphs.push_back(graph);
  if (work.upload) {
    if (!graph->IsUploaded()) result = cuda.cuGraphUpload(graph->exec(), stream.cuda);
  } else {
    std::optional<StandIn::Absence> absence;
    if (graph->MayWait()) absence.emplace(services_.stand_in);
    result = cuda.cuGraphLaunch(graph->exec(), stream.cuda);
    absence.reset();
    port_->CountKernels(graph->kernels());
    waits = graph->waits_at_once();
    graph_waits_.at_once += waits;
    services_.graphs->waits += waits;
  }
  ++graph->in_flight;
  stream.graphs.push_back({static_cast<uint64_t>(ticket), graph, waits, std::move(work.points)});
  graph->OnSubmitted();
  TryUpdate(graph);
  return result;
}

void Graphs::FinishGraphs(Stream& stream) {
  while (!stream.graphs.empty() && stream.graphs.front().ticket <= stream.completed) {
    const GraphRun run = std::move(stream.graphs.front());
    stream.graphs.pop_front();
    for (const PointRef& point : run.points) point->done = true;
    graph_waits_.at_once -= run.waits;
    services_.graphs->waits -= run.waits;
    if (--run.graph->in_flight != 0) continue;
    std::erase(graph_waits_.graphs, run.graph);
    run.graph->ForgetFormerWaits();
    TryUpdate(run.graph);
  }
}

// Nobody is left who would write what graphs wait for. Again and again: of several values for one
// place the GPU must find each there for a while.
void Graphs::LetGraphsGo() {
  if (graph_waits_.graphs.empty() || now_ns() - graph_waits_.let_go_ns < kLetGoEveryNs) return;
  graph_waits_.let_go_ns = now_ns();
  const Driver& cuda = services_.device->cuda();
  CUstream stream = services_.graphs->stream;
  bool any = false;
  size_t written = 0;
  for (size_t turn = 0; turn < graph_waits_.graphs.size() && written < kLetGoAtATime; ++turn) {
    graph_waits_.turn = (graph_waits_.turn + 1) % graph_waits_.graphs.size();
    const GraphRef& graph = graph_waits_.graphs[graph_waits_.turn];
    const uint64_t round = graph->let_go_rounds++;
    const std::vector<Graph::ValueWait>& waits = graph->SortedValueWaits();
    const size_t turns = waits.size() / kLetGoAtATime + 1;
    for (size_t begin = 0, end = 0, place = 0; begin < waits.size(); begin = end, ++place) {
      while (end < waits.size() && waits[end].address == waits[begin].address) ++end;
      if (place / kLetGoAtATime != round % turns) continue;
      const Graph::ValueWait& wait = waits[begin + round / turns % (end - begin)];
      const uint64_t bytes = wait.wide ? 8 : 4;
      if (!device_memory_->MayStillWrite(wait.address, bytes)) continue;
      any = true;
      ++written;
      services_.device->Judge(
          wait.wide ? cuda.cuStreamWriteValue64_v2(stream, wait.address, wait.value, 0)
                    : cuda.cuStreamWriteValue32_v2(stream, wait.address,
                                                   static_cast<uint32_t>(wait.value), 0));
    }
  }
  if (!any) return;
  if (graph_waits_.let_go == nullptr &&
      services_.device->TakeEvent(false, &graph_waits_.let_go) != CUDA_SUCCESS) {
    return;
  }
  services_.device->Judge(cuda.cuEventRecord(graph_waits_.let_go, stream));
}

// The memory must not go before what writes to it.
bool Graphs::GraphsLetGo() {
  if (graph_waits_.let_go == nullptr) return true;
  if (services_.device->Judge(services_.device->cuda().cuEventQuery(graph_waits_.let_go)) ==
      CUDA_ERROR_NOT_READY) {
    return false;
  }
  services_.device->GiveEvent(false, graph_waits_.let_go);
  graph_waits_.let_go = nullptr;
  return true;
}

// Asks the tenant for the functions that the GPU has come to. At the session's end the GPU goes on
// without them.
bool Graphs::PollGraphCalls() {
  bool any = false;
  size_t looks = 0;
  // Where the last round has stopped; all of them are a few as a rule.
  for (size_t turn = 0; turn < graph_waits_.graphs.size() && looks < kCallsAtATime; ++turn) {
    graph_waits_.turn = (graph_waits_.turn + 1) % graph_waits_.graphs.size();
    const GraphRef& graph = graph_waits_.graphs[graph_waits_.turn];
    auto& calls = graph->host_calls();
    looks += calls.size() + 1;
    for (uint32_t i = 0; i < calls.size(); ++i) {
      if (!serving()) {
        if (graph->TakeReady(i) || calls[i].ready || calls[i].called) graph->SetDone(i);
        calls[i].ready = calls[i].called = false;
        continue;
      }
      if (calls[i].called) continue;
      if (!calls[i].ready && !(calls[i].ready = graph->TakeReady(i))) continue;
      calls[i].called = host_functions_->Call(calls[i].token, [weak = std::weak_ptr(graph), i] {
        // Gone, or let go already, when the session has ended meanwhile.
        const GraphRef caller = weak.lock();
        if (caller == nullptr || !caller->host_calls()[i].called) return;
        caller->host_calls()[i].called = false;
        caller->SetDone(i);
      });
      if (!calls[i].called) continue;  // the board is full
      calls[i].ready = false;
      port_->Publish();
      any = true;
    }
  }
  return any;
}

}  // namespace gpuloom::executor
