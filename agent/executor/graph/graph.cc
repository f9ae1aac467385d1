// SPDX-License-Identifier: Apache-2.0
// Graphs: instantiated on a worker, updated in the order of their launches, launched like any other
// command of a stream.
#include "agent/executor/graph/graph.h"

#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/event/events.h"
#include "agent/executor/graph/conditionals.h"
#include "agent/executor/graph/graph_width.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/libraries.h"
#include "agent/executor/stream/host_function.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// How many nodes and memory operations are judged before the ring thread turns to other work.
constexpr uint32_t kJudgeAtATime = 256;
// How many updates of a graph may be answered before they are made. Further ones are answered when
// they are made, so a session cannot have more of them than it has reply slots.
constexpr uint32_t kMaxAnsweredUpdates = 16;
// Updates up to this size are made on the ring thread: 1–7 µs each, measured.
constexpr uint32_t kUpdateAtOnce = 16;

}  // namespace

// The offset of a graph command's block in the arena; the block is in no shared memory if it came
// with the record.
struct Graphs::GraphBlock {
  std::shared_ptr<HostMemory> host;
  uint64_t address;
  uint64_t size_bytes;

  // On a worker, or for a short update on the ring thread. The budget is asked before the copy: a
  // definition may have kMaxGraphBytes.
  void Read(GraphPlan* plan, wire::GraphReader::Form form) const {
    if (size_bytes != 0) {
      if (!plan->charge.Add((1 + kReadingGraphTakes) * size_bytes)) {
        plan->well_formed = true;  // nobody has read it yet
        return plan->Fail(CUDA_ERROR_OUT_OF_MEMORY, wire::kNoGraphNode);
      }
      plan->block.resize(size_bytes);
      if (!host->Read(address, plan->block.data(), size_bytes)) return;
    }
    plan->well_formed =
        plan->reader.Parse(plan->block, form) &&
        (form == wire::GraphReader::Form::kUpdate || plan->scopes.Read(plan->reader));
    if (!plan->well_formed) return;
    plan->callees.resize(plan->reader.nodes());
    if (form == wire::GraphReader::Form::kDefinition) {
      plan->sections = CutIntoSections(plan->reader, plan->scopes);
      plan->branches = BranchesOf(plan->reader, plan->scopes, plan->sections);
      plan->heads = HeadsOf(plan->reader, plan->scopes);
      return;
    }
    for (uint32_t i = 0; i < plan->reader.nodes() && !plan->disables; ++i) {
      plan->disables = (plan->reader.Node(i).flags & wire::kGraphNodeDisabled) != 0;
    }
  }
};

bool Graphs::FindGraphBlock(wire::HostPtr address, uint64_t size_bytes, const wire::Record& record,
                            GraphPlan* plan, GraphBlock* block) {
  *block = {host_, static_cast<uint64_t>(address), size_bytes};
  if (!record.payload.empty()) {
    block->size_bytes = 0;
    plan->block.assign(record.payload.begin(), record.payload.end());
    return true;
  }
  if (size_bytes != 0 && size_bytes <= wire::kMaxGraphBytes &&
      host_->range.Contains(block->address, size_bytes)) {
    return true;
  }
  Refuse(wire::Fatal::kBadRange);
  return false;
}

// Memory operations count like nodes: each names an address that is looked up.
bool Graphs::JudgeGraph(GraphPlan* plan, uint32_t entries) {
  for (uint32_t spent = 0; spent < entries && plan->judged < plan->reader.nodes(); ++spent) {
    spent += plan->reader.Operations(plan->reader.Node(plan->judged));
    const CUresult result = JudgeGraphNode(plan, plan->judged);
    if (result != CUDA_SUCCESS) {
      plan->Fail(result, plan->reader.Node(plan->judged).index);
      return true;
    }
    ++plan->judged;
  }
  return plan->judged == plan->reader.nodes();
}

void Graphs::On(wire::Tag<wire::GraphInstantiate>, const wire::GraphInstantiate::Request& request,
                const wire::Record& record) {
  if ((request.flags & ~wire::kGraphUseNodePriority) != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  auto plan = std::make_shared<GraphPlan>(host_->budget);
  plan->band = port_->Band();
  plan->context = port_->context();
  plan->node_priorities = (request.flags & wire::kGraphUseNodePriority) != 0;
  GraphBlock block;
  if (!FindGraphBlock(request.definition, request.definition_bytes, record, plan.get(), &block)) {
    return;
  }
  if (graphs_.Add(request.graph) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  modules_.Post([plan, block] { block.Read(plan.get(), wire::GraphReader::Form::kDefinition); },
                // With the block the arena is let go of on this thread.
                [this, plan, block, caller = CallerOf(record), request] {
                  if (!serving()) return;
                  if (!plan->well_formed) return EndFor(wire::Fatal::kBadArgument);
                  MakeGraph(caller, request, plan);
                });
}

// Called again until the definition is validated, then when it is paid for, for conditional graphs
// when their reservation is free, and when there are events for its records. The plan holds the
// progress. A worker builds the graph while other work runs if the driver has room, otherwise in a
// quiet moment.
void Graphs::MakeGraph(Caller caller, const wire::GraphInstantiate::Request& request,
                       const PlanRef& plan) {
  if (!serving()) return;
  if (!JudgeGraph(plan.get(), kJudgeAtATime)) {
    // An empty job: the ring thread turns to others, and the session's next load or graph stays
    // behind this one.
    return modules_.PostNext([] {},
                             [this, caller, request, plan] { MakeGraph(caller, request, plan); });
  }
  if (plan->result == CUDA_SUCCESS && !plan->is_paid) {
    plan->is_paid = true;
    // The driver takes the larger of the two: an amount for each branch, or for all nodes.
    const uint64_t price =
        std::max(std::max<uint64_t>(plan->branches, 1) * kGraphTakesOfDeviceBytes,
                 plan->reader.nodes() * kGraphNodeTakesOfDeviceBytes + plan->param_bytes);
    return Charge(price, [this, caller, request, plan](CUresult charged, DeviceChargeRef charge) {
      if (charged != CUDA_SUCCESS) plan->Fail(charged, wire::kNoGraphNode);
      plan->device_charge = std::move(charge);
      MakeGraph(caller, request, plan);
    });
  }
  const bool conditional = plan->reservation != nullptr && plan->result == CUDA_SUCCESS;
  if (conditional && !TakesReservation(caller, request, plan)) return;
  if (plan->result == CUDA_SUCCESS) {
    plan->events = services_.device->PromiseEvents(plan->records);
    if (plan->events == nullptr) {
      graphs_short_of_events_.push_back({caller, request, plan});
      return;
    }
  }
  auto graph = std::make_shared<Graph>(services_.device, services_.modules, services_.quiet,
                                       services_.graphs, conditions_->graph_nodes(), host_->budget);
  // Graphs to be destroyed are waiting for a quiet moment, so a new one can wait for it as well.
  const bool fits = !conditional && services_.graphs->Fits(plan->branches, plan->reader.nodes());
  if (plan->result == CUDA_SUCCESS) plan->result = graph->Prepare(*plan);
  const auto finish = [this, caller, request, plan, graph, conditional] {
    if (conditional) plan->reservation->busy = 0;
    if (!serving()) return;
    services_.device->Judge(plan->result);
    if (plan->result == CUDA_SUCCESS) {
      graphs_.Find(request.graph)->graph = graph;
      services_.graphs->OnMade();
    } else {
      graphs_.Take(request.graph);
    }
    plan->device_charge.reset();  // it is the graph's now
    Reply<wire::GraphInstantiate>(caller, plan->result, {plan->failed_node, 0});
  };
  if (plan->result != CUDA_SUCCESS) return finish();
  const auto build = [graph, plan] { graph->Build(plan.get()); };
  if (fits) return modules_.PostNext(build, finish);
  if (conditional) {
    plan->reservation->busy = 1;
    // Otherwise they would pile up if the device is never idle.
    if (services_.graphs->retired != 0) services_.quiet->ExpediteRetired();
  }
  ++outstanding_;
  services_.quiet->Need(owner(), build, [this, finish] {
    --outstanding_;
    finish();
  });
}

// A graph that is still being made is refused, too: an honest shim waits for the answer.
Graph* Graphs::FindGraph(wire::GraphId id_untrusted) {
  const GraphEntry* entry = graphs_.Find(id_untrusted);
  if (entry != nullptr && entry->graph != nullptr) return entry->graph.get();
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

// An update takes its place between launches when it is read: launches_before counts those that it
// must not overtake, and MayLaunch keeps those behind it waiting, even while it is still being
// judged.
void Graphs::On(wire::Tag<wire::GraphUpdate>, const wire::GraphUpdate::Request& request,
                const wire::Record& record) {
  Graph* graph = FindGraph(request.graph);
  if (graph == nullptr) return;
  Reservation* reservation = graph->reservation();
  if (reservation != nullptr && reservation->creating != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  auto plan = std::make_shared<GraphPlan>(host_->budget);
  GraphBlock block;
  if (!FindGraphBlock(request.update, request.update_bytes, record, plan.get(), &block)) return;
  if (reservation != nullptr) ++reservation->busy;
  Graph::Update update;
  update.ticket = record.ticket;
  update.plan = plan;
  update.launches_before = graph->launches_queued;
  update.answer = [this, plan, caller = CallerOf(record)] {
    services_.device->Judge(plan->result);
    Reply<wire::GraphUpdate>(caller, plan->result, {plan->failed_node, 0});
  };
  graph->updates.push_back(std::move(update));
  graph->launches_queued = 0;
  // The tenant may destroy the graph meanwhile; the update still has its answer to give.
  const GraphRef held = graphs_.Find(request.graph)->graph;
  if (block.size_bytes == 0) {
    block.Read(plan.get(), wire::GraphReader::Form::kUpdate);
    return JudgeUpdate(held, record.ticket);
  }
  modules_.Post([plan, block] { block.Read(plan.get(), wire::GraphReader::Form::kUpdate); },
                [this, block, held, ticket = record.ticket] { JudgeUpdate(held, ticket); });
}

// In pieces, like a definition. An index or a kind that does not fit the graph is no mistake of a
// program's: the shim knows the definition.
void Graphs::JudgeUpdate(const GraphRef& graph, wire::Ticket ticket) {
  if (!serving()) return;
  const auto update =
      std::find_if(graph->updates.begin(), graph->updates.end(),
                   [ticket](const Graph::Update& one) { return one.ticket == ticket; });
  GraphPlan* plan = update->plan.get();
  if (!plan->well_formed) return EndFor(wire::Fatal::kBadArgument);
  const uint32_t begin = plan->judged;
  const uint32_t end = std::min(plan->reader.nodes(), begin + kJudgeAtATime);
  for (uint32_t i = begin; i < end; ++i) {
    const wire::GraphNode node = plan->reader.Node(i);
    if (node.index >= graph->nodes() || node.kind != graph->KindOf(node.index)) {
      return EndFor(wire::Fatal::kBadArgument);
    }
  }
  if (!JudgeGraph(plan, kJudgeAtATime)) {
    return modules_.PostNext([] {}, [this, graph, ticket] { JudgeUpdate(graph, ticket); });
  }
  if (plan->result == CUDA_SUCCESS && !plan->is_paid) {
    plan->is_paid = true;
    const Graph::Growth growth = graph->GrowthOf(*plan);
    return Charge(growth.charge_bytes, [this, graph, ticket, held = update->plan, growth](
                                           CUresult charged, DeviceChargeRef charge) {
      if (charged == CUDA_SUCCESS && !graph->Grow(*held, growth, std::move(charge))) {
        charged = CUDA_ERROR_OUT_OF_MEMORY;
      }
      if (charged != CUDA_SUCCESS) held->Fail(charged, wire::kNoGraphNode);
      JudgeUpdate(graph, ticket);
    });
  }
  update->judged = true;
  // The thread that updates may be the one that lets an earlier launch continue, so it must not
  // wait here.
  const bool waits = update->launches_before != 0 || update != graph->updates.begin();
  if (waits && graph->answered_updates < kMaxAnsweredUpdates && graph->IsSureOf(*plan) &&
      plan->charge.Add((1 + kReadingGraphTakes) * plan->block.size())) {
    update->answered = true;
    ++graph->answered_updates;
    update->answer();
  }
  TryUpdate(graph);
}

// Makes the updates whose turn it is: all launches before them have been given to CUDA, and none of
// those after them.
void Graphs::TryUpdate(const GraphRef& graph) {
  while (!graph->updates.empty()) {
    Graph::Update& update = graph->updates.front();
    // Only the first one: updates keep their order, whichever is judged first.
    if (!update.judged || update.running || update.launches_before != 0 || graph->moving) return;
    update.running = true;
    const PlanRef plan = update.plan;
    if (plan->result == CUDA_SUCCESS &&
        (plan->reader.nodes() > kUpdateAtOnce || graph->ChangesAttributes(*plan))) {
      return modules_.Post([graph, plan] { graph->Apply(plan.get()); },
                           [this, graph] {
                             if (!serving()) return;
                             FinishUpdate(*graph);
                             TryUpdate(graph);
                           });
    }
    if (plan->result == CUDA_SUCCESS) graph->Apply(plan.get());
    FinishUpdate(*graph);
  }
}

// One that was answered before it was made can only fail as CUDA's asynchronous errors do, with the
// next call.
void Graphs::FinishUpdate(Graph& graph) {
  const Graph::Update update = std::move(graph.updates.front());
  graph.updates.pop_front();
  graph.AdoptUpdate(*update.plan);
  if (graph.reservation() != nullptr) --graph.reservation()->busy;
  if (!update.answered) return update.answer();
  --graph.answered_updates;
  if (services_.device->Judge(update.plan->result) != CUDA_SUCCESS) {
    port_->ReportAsyncError(wire::kLegacyStream, update.plan->result);
  }
}

void Graphs::On(wire::Tag<wire::GraphLaunch>, const wire::GraphLaunch::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Graph* graph = FindGraph(request.graph);
  if (graph == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  GraphWork work{graphs_.Find(request.graph)->graph, false, {}, nullptr};
  // The whole launch waits, not just the node. The record is an older command, so this may wait
  // longer than necessary, but never in a circle.
  for (const Graph::Wait& wait : graph->waits()) {
    const Event* event = events_->Find(wait.event);
    if (event == nullptr || event->latest == nullptr || event->latest->done) continue;
    command.dependencies.push_back({event->latest->stream, event->latest->ticket, event->latest});
  }
  // Launches of one executable graph wait for one another in whatever stream, and the driver would let them do so at the
  // device, in hardware queues of which nobody knows.
  if (graph->launched != wire::Ticket{} && graph->launched_in != request.stream) {
    command.dependencies.push_back({graph->launched_in, graph->launched, nullptr});
  }
  graph->launched_in = request.stream;
  graph->launched = record.ticket;
  // A new point each time, as for EventRecord. Its CUDA event is the graph's own and is recorded
  // again with each launch.
  for (const Graph::Record& recorded : graph->records()) {
    Event* event = events_->Find(recorded.event);
    if (event == nullptr) continue;  // destroyed meanwhile
    event->latest =
        std::make_shared<Point>(services_.device, request.stream, record.ticket, event->timing);
    event->latest->event = recorded.cuda->event;
    event->latest->event_owner = recorded.cuda;
    work.points.push_back(event->latest);
  }
  if (graph->sections() != 1) work.sections = CutLaunch(*stream, work.graph, &command);
  command.work = std::move(work);
  graph->OnQueued();
  streams_.Enqueue(*stream, std::move(command));
}

void Graphs::On(wire::Tag<wire::GraphUpload>, const wire::GraphUpload::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Graph* graph = FindGraph(request.graph);
  if (graph == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = GraphWork{graphs_.Find(request.graph)->graph, true, {}, nullptr};
  graph->OnQueued();
  streams_.Enqueue(*stream, std::move(command));
}

void Graphs::On(wire::Tag<wire::GraphDestroy>, const wire::GraphDestroy::Request& request,
                const wire::Record&) {
  if (FindGraph(request.graph) != nullptr) graphs_.Take(request.graph);
}

// The driver's graph with the handles can serve one executable graph at a time, and the previous
// one is destroyed in a quiet moment only: the request waits for it (MakeWaitingGraphs).
bool Graphs::TakesReservation(Caller caller, const wire::GraphInstantiate::Request& request,
                              const PlanRef& plan) {
  // An honest shim makes one such call at a time.
  constexpr size_t kMostWaiting = 16;
  Reservation& reservation = *plan->reservation;
  if (reservation.creating != 0 || graphs_to_make_.size() == kMostWaiting) {
    EndFor(wire::Fatal::kBadArgument);
    return false;
  }
  if (reservation.users != 0) {
    if (services_.graphs->retired != 0) services_.quiet->ExpediteRetired();
    graphs_to_make_.push_back({caller, request, plan});
    return false;
  }
  return true;
}

// Goes on with graphs that waited for the end of their reservation's previous Graph, and with one
// of those that waited for events: there may be very many of these.
void Graphs::MakeWaitingGraphs() {
  std::vector<GraphToMake> waiting;
  waiting.swap(graphs_to_make_);
  if (!graphs_short_of_events_.empty()) {
    waiting.push_back(std::move(graphs_short_of_events_.front()));
    graphs_short_of_events_.pop_front();
  }
  for (const GraphToMake& one : waiting) MakeGraph(one.caller, one.request, one.plan);
}

}  // namespace gpuloom::executor
