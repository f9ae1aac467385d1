// SPDX-License-Identifier: Apache-2.0
// Graphs at CUDA: launched, section by section.
#include <algorithm>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/device/device.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/stream/host_function.h"
#include "agent/executor/stream/memory_operations.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// How many waiting nodes, in all launches of a session, are checked for their values. Others follow
// later.
constexpr uint32_t kMaxWaitingNodes = 1024;
// How many runs of a launch advance at a time.
constexpr size_t kRunsAtATime = 16;

}  // namespace

// A section without device nodes is no part of the command: ReachesSection passes it over. The last
// one always is, so that the command ends when its host nodes are done.
std::shared_ptr<SectionedLaunch> Graphs::CutLaunch(const Stream& stream, const GraphRef& graph,
                                                   StreamCommand* command) {
  auto launch =
      std::make_shared<SectionedLaunch>(SectionedLaunch{graph, command->ticket, stream.id});
  for (uint32_t i = 0; i + 1 < graph->sections(); ++i) {
    command->parts += graph->HasExec(i);
  }
  graph->cut_launches.push_back(static_cast<uint64_t>(command->ticket));
  command->gate = std::make_shared<Gate>();
  command->gate->try_open = [this, launch](Gate* gate) { gate->open = ReachesSection(launch); };
  return launch;
}

bool Graphs::ReachesSection(const std::shared_ptr<SectionedLaunch>& launch) {
  Graph& graph = *launch->graph;
  if (!launch->begun) {
    // Launches of one graph run one after the other, in their order.
    if (graph.cut_launches.front() != static_cast<uint64_t>(launch->ticket) ||
        graph.in_flight != 0 || !graph.MayLaunch(launch->ticket)) {
      return false;
    }
    launch->begun = true;
  }
  for (;; launch->GoOn()) {
    if (launch->next != 0 && !TakesHostsTurn(launch)) return false;
    if (graph.HasExec(launch->next) || launch->next + 1 == graph.sections()) return true;
  }
}

// Starts the host nodes behind the section before `next`, as far as there is room, and looks how
// far those are that wait for values. Returns true when all are done. Called in each round, and
// begins where it stopped.
bool Graphs::TakesHostsTurn(const std::shared_ptr<SectionedLaunch>& launch) {
  const auto& nodes = launch->graph->HostNodesBehind(launch->next - 1);
  for (; launch->begun_nodes < nodes.size(); ++launch->begun_nodes) {
    const Graph::HostNode& node = nodes[launch->begun_nodes];
    const auto on_done = [launch] { ++launch->done_nodes; };
    if (node.disabled) {
      on_done();
    } else if (node.copy) {
      host_copies_->Copy(HostBlockOf(*node.copy), launch->stream, on_done);
    } else if (node.operations != nullptr) {
      if (waiting_nodes_ == kMaxWaitingNodes) break;
      ++waiting_nodes_;
      launch->runs.push_back(memory_operations_->Begin(node.operations, launch->stream));
    } else if (host_functions_->Call(node.token, on_done)) {
      port_->Publish();
    } else {
      break;  // the board is full
    }
  }
  std::vector<OperationsRunRef>& runs = launch->runs;
  bool any_done = false;
  for (size_t left = std::min(runs.size(), kRunsAtATime); left != 0; --left) {
    if (launch->turn >= runs.size()) launch->turn = 0;
    if (!memory_operations_->GoOn(runs[launch->turn])) {
      ++launch->turn;
      continue;
    }
    std::swap(runs[launch->turn], runs.back());
    runs.pop_back();
    --waiting_nodes_;
    ++launch->done_nodes;
    any_done = true;
  }
  // Finished ones watch no word any more, some were not checked this time, and other launches wait
  // for room.
  if (any_done || !runs.empty()) memory_operations_->KeepWatching(/*soon=*/any_done);
  return launch->done_nodes == nodes.size();
}

CUresult Graphs::SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work, CUresult made) {
  const Driver& cuda = services_.device->cuda();
  const GraphRef graph = work.graph;
  SectionedLaunch* const launch = work.sections.get();
  const uint32_t section = launch == nullptr ? 0 : launch->next;
  // Not beyond the session's multiprocessors, if it could not be moved to them.
  const bool moved = graph->context() == port_->context() || graph->reservation() != nullptr;
  CUresult result = made == CUDA_SUCCESS && !moved ? graph->move_result : made;
  if (result != CUDA_SUCCESS) {
    // Reported below.
  } else if (work.upload) {
    if (!graph->IsUploaded()) result = cuda.cuGraphUpload(graph->exec(0), stream.cuda);
  } else if (graph->exec(section) != nullptr) {
    result = cuda.cuGraphLaunch(graph->exec(section), stream.cuda);
  }
  // Once for each launch, with its first section: from then on it is at CUDA until the stream's
  // mark for its ticket is reached.
  if (launch == nullptr || !launch->is_counted) {
    ++graph->in_flight;
    stream.graphs.push_back({static_cast<uint64_t>(ticket), graph, {}});
  }
  if (launch != nullptr) {
    launch->is_counted = true;
    if (section + 1 != graph->sections()) {
      launch->GoOn();
      return result;
    }
    // The next launch of this graph may begin when this one is done (in_flight).
    graph->cut_launches.pop_front();
  }
  if (!work.upload) port_->CountKernels(graph->kernels());
  stream.graphs.back().points = std::move(work.points);
  graph->OnSubmitted();
  TryUpdate(graph);
  return result;
}

// An idle stream may still have a launch whose last section never came: its session has ended.
uint32_t Graphs::FinishGraphs(Stream& stream) {
  uint32_t timing = 0;
  while (!stream.graphs.empty() &&
         (stream.graphs.front().ticket <= stream.completed || stream.Idle())) {
    const GraphRun run = std::move(stream.graphs.front());
    stream.graphs.pop_front();
    timing += run.timing;
    for (const PointRef& point : run.points) {
      point->done = true;
      point->seen_ns = now_ns();
    }
    // An update may have been waiting for the graph to be at rest.
    if (--run.graph->in_flight == 0) TryUpdate(run.graph);
  }
  return timing;
}

}  // namespace gpuloom::executor
