// SPDX-License-Identifier: Apache-2.0
// Graphs at CUDA: launched, section by section, let go at the session's end.
#include <algorithm>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/device/device.h"
#include "agent/executor/graph/graph_waits.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/stream/host_functions.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// A graph whose session ends has so long to come to its next wait.
constexpr uint64_t kLetGoEveryNs = 2'000'000;
constexpr size_t kLetGoAtATime = 64;  // places

}  // namespace

bool Graphs::MayLaunchGraph(const GraphWork& work, wire::Ticket ticket) const {
  if (!work.graph->MayLaunch(ticket)) return false;
  const bool has_begun = work.sections != nullptr && work.sections->is_counted;
  const uint32_t waits = work.upload || has_begun ? 0 : work.graph->waits_at_once();
  if (waits == 0) return true;
  return services_.graphs->waits + waits <= kMostGraphWaits &&
         (graph_waits_.at_once == 0 || graph_waits_.at_once + waits <= kMostSessionGraphWaits);
}

std::shared_ptr<SectionedLaunch> Graphs::CutLaunch(const Stream& stream, const GraphRef& graph,
                                                   StreamCommand* command) {
  auto launch =
      std::make_shared<SectionedLaunch>(SectionedLaunch{graph, command->ticket, stream.id});
  for (uint32_t i = 0; i + 1 < graph->sections(); ++i) {
    command->parts += graph->exec(i) != nullptr;
  }
  graph->cut_launches.push_back(static_cast<uint64_t>(command->ticket));
  command->gate = std::make_shared<Gate>();
  command->gate->knock = [this, launch](Gate* gate) { gate->open = ReachesSection(launch); };
  return launch;
}

bool Graphs::ReachesSection(const std::shared_ptr<SectionedLaunch>& launch) {
  Graph& graph = *launch->graph;
  if (!launch->begun) {
    // Launches of one graph run one after the other, as they came.
    if (graph.cut_launches.front() != static_cast<uint64_t>(launch->ticket) ||
        graph.in_flight != 0 || !graph.MayLaunch(launch->ticket)) {
      return false;
    }
    launch->begun = true;
  }
  for (;; launch->GoOn()) {
    if (launch->next != 0 && !TakesHostsTurn(launch)) return false;
    if (graph.exec(launch->next) != nullptr || launch->next + 1 == graph.sections()) return true;
  }
}

bool Graphs::TakesHostsTurn(const std::shared_ptr<SectionedLaunch>& launch) {
  const auto& nodes = launch->graph->HostNodesBehind(launch->next - 1);
  for (; launch->begun_nodes < nodes.size(); ++launch->begun_nodes) {
    const Graph::HostNode& node = nodes[launch->begun_nodes];
    const auto on_done = [launch] { ++launch->done_nodes; };
    if (node.disabled) {
      on_done();
    } else if (node.copy) {
      host_copies_->Copy(HostBlockOf(*node.copy), launch->stream, on_done);
    } else if (host_functions_->Call(node.token, on_done)) {
      port_->Publish();
    } else {
      break;  // the board is full
    }
  }
  return launch->done_nodes == nodes.size();
}

CUresult Graphs::SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work) {
  const Driver& cuda = services_.device->cuda();
  const GraphRef graph = work.graph;
  SectionedLaunch* const launch = work.sections.get();
  const uint32_t section = launch == nullptr ? 0 : launch->next;
  CUresult result = CUDA_SUCCESS;
  if (work.upload) {
    if (!graph->IsUploaded()) result = cuda.cuGraphUpload(graph->exec(0), stream.cuda);
  } else if (graph->exec(section) != nullptr) {
    result = cuda.cuGraphLaunch(graph->exec(section), stream.cuda);
  }
  if (launch == nullptr || !launch->is_counted) {
    if (graph->MayWait() && graph->in_flight == 0) graph_waits_.graphs.push_back(graph);
    const uint32_t waits = work.upload ? 0 : graph->waits_at_once();
    graph_waits_.at_once += waits;
    services_.graphs->waits += waits;
    ++graph->in_flight;
    stream.graphs.push_back({static_cast<uint64_t>(ticket), graph, waits, {}});
  }
  if (launch != nullptr) {
    launch->is_counted = true;
    if (section + 1 != graph->sections()) {
      launch->GoOn();
      return result;
    }
    graph->cut_launches.pop_front();
  }
  if (!work.upload) port_->CountKernels(graph->kernels());
  stream.graphs.back().points = std::move(work.points);
  graph->OnSubmitted();
  TryUpdate(graph);
  return result;
}

void Graphs::FinishGraphs(Stream& stream) {
  while (!stream.graphs.empty() &&
         (stream.graphs.front().ticket <= stream.completed || stream.Idle())) {
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

}  // namespace gpuloom::executor
