// Graphs: instantiated on a worker, updated in the order of their launches, launched like any other
// command of a stream.
#include "agent/executor/graph.h"

#include <algorithm>
#include <optional>

#include "agent/executor/graph_waits.h"
#include "agent/executor/session.h"
#include "agent/executor/session_parts.h"

namespace gpuloom::executor {
namespace {

// So many nodes and memory operations are judged before other work of the ring thread has its turn.
constexpr uint32_t kJudgeAtATime = 256;
// A graph whose session ends has so long to come to its next wait.
constexpr uint64_t kLetGoEveryNs = 2'000'000;
constexpr size_t kLetGoAtATime = 64;  // places
// Updates up to this size are made on the ring thread: 1–7 µs each, measured.
constexpr uint32_t kUpdateAtOnce = 16;
// Functions of running graphs that are looked at in a round.
constexpr size_t kCallsAtATime = 1024;

}  // namespace

// Where the block of a graph command lies: nowhere any more when it came with the record.
struct Session::GraphBlock {
  std::shared_ptr<HostMemory> host;
  uint64_t address;
  uint64_t size_bytes;

  void Read(GraphPlan* plan, wire::GraphReader::Form form) const {
    if (size_bytes != 0) {
      if (!plan->charge.Add((1 + kReadingGraphTakes) * size_bytes)) {
        plan->well_formed = true;  // nobody has looked
        return plan->Fail(CUDA_ERROR_OUT_OF_MEMORY, wire::kNoGraphNode);
      }
      plan->block.resize(size_bytes);
      if (!host->Read(address, plan->block.data(), size_bytes)) return;
    }
    plan->well_formed =
        plan->reader.Parse(plan->block, form) &&
        (form == wire::GraphReader::Form::kUpdate || plan->scopes.Read(plan->reader));
    if (!plan->well_formed) return;
    plan->functions.resize(plan->reader.nodes());
    if (form == wire::GraphReader::Form::kDefinition) {
      plan->waits_at_once = WaitsAtOnce(plan->reader);
    }
  }
};

bool Session::FindGraphBlock(wire::HostPtr address, uint64_t size_bytes, const wire::Record& record,
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

bool Session::JudgeGraph(GraphPlan* plan, uint32_t entries) {
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

void Session::On(wire::Tag<wire::GraphInstantiate>, const wire::GraphInstantiate::Request& request,
                 const wire::Record& record) {
  if ((request.flags & ~wire::kGraphUseNodePriority) != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  auto plan = std::make_shared<GraphPlan>(host_->budget);
  GraphBlock block;
  if (!FindGraphBlock(request.definition, request.definition_bytes, record, plan.get(), &block)) {
    return;
  }
  if (graphs_.Add(request.graph) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  modules_.Post([plan, block] { block.Read(plan.get(), wire::GraphReader::Form::kDefinition); },
                // With the block the arena is let go of on this thread.
                [this, plan, block, asker = AskerOf(record), request] {
                  if (state_ != State::kServing) return;
                  if (!plan->well_formed) return EndFor(wire::Fatal::kBadArgument);
                  MakeGraph(asker, request, plan);
                });
}

void Session::MakeGraph(Asker asker, const wire::GraphInstantiate::Request& request,
                        const PlanRef& plan) {
  if (state_ != State::kServing) return;
  if (!JudgeGraph(plan.get(), kJudgeAtATime)) {
    return modules_.PostNext([] {},
                             [this, asker, request, plan] { MakeGraph(asker, request, plan); });
  }
  if (plan->result == CUDA_SUCCESS && !plan->is_paid) {
    plan->is_paid = true;
    const uint64_t price =
        std::max(kGraphTakesOfDeviceBytes, plan->reader.nodes() * kGraphNodeTakesOfDeviceBytes);
    return ChargeDevice(place_.scheduler, id(), price, &outstanding_,
                        [this, asker, request, plan](CUresult charged, DeviceChargeRef charge) {
                          if (charged != CUDA_SUCCESS) plan->Fail(charged, wire::kNoGraphNode);
                          plan->device_charge = std::move(charge);
                          MakeGraph(asker, request, plan);
                        });
  }
  const bool conditional = plan->reservation != nullptr && plan->result == CUDA_SUCCESS;
  if (conditional && !TakesReservation(asker, request, plan)) return;
  auto graph = std::make_shared<Graph>(place_.device, place_.modules, place_.quiet, place_.staging,
                                       place_.graphs, tenant_, graph_nodes_, host_->budget);
  // Those that are gone wait for a quiet moment, so a new one may as well.
  const bool fits = !conditional && place_.graphs->Fits(plan->reader.nodes());
  if (plan->result == CUDA_SUCCESS) plan->result = graph->Prepare(*plan);
  const auto finish = [this, asker, request, plan, graph, conditional] {
    if (conditional) plan->reservation->busy = 0;
    if (state_ != State::kServing) return;
    place_.device->Judge(plan->result);
    if (plan->result == CUDA_SUCCESS) {
      graphs_.Find(request.graph)->graph = graph;
      place_.graphs->OnMade();
    } else {
      graphs_.Take(request.graph);
    }
    plan->device_charge.reset();  // the graph's alone
    Reply<wire::GraphInstantiate>(asker, plan->result, {plan->failed_node, 0});
  };
  if (plan->result != CUDA_SUCCESS) return finish();
  const auto build = [graph, plan, flags = request.flags] { graph->Build(plan.get(), flags); };
  if (fits) return modules_.PostNext(build, finish);
  if (conditional) {
    plan->reservation->busy = 1;
    // Or they would pile up beside a device that is never idle.
    if (place_.graphs->buried != 0) place_.quiet->HurryBuried();
  }
  ++outstanding_;
  place_.quiet->Need(owner(), build, [this, finish] {
    --outstanding_;
    finish();
  });
}

Graph* Session::FindGraph(wire::GraphId id_untrusted) {
  const GraphEntry* entry = graphs_.Find(id_untrusted);
  if (entry != nullptr && entry->graph != nullptr) return entry->graph.get();
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

void Session::On(wire::Tag<wire::GraphUpdate>, const wire::GraphUpdate::Request& request,
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
  update.answer = [this, plan, asker = AskerOf(record)] {
    place_.device->Judge(plan->result);
    Reply<wire::GraphUpdate>(asker, plan->result, {plan->failed_node, 0});
  };
  graph->updates.push_back(std::move(update));
  graph->launches_queued = 0;
  const GraphRef held = graphs_.Find(request.graph)->graph;
  if (block.size_bytes == 0) {
    block.Read(plan.get(), wire::GraphReader::Form::kUpdate);
    return JudgeUpdate(held, record.ticket);
  }
  modules_.Post([plan, block] { block.Read(plan.get(), wire::GraphReader::Form::kUpdate); },
                [this, block, held, ticket = record.ticket] { JudgeUpdate(held, ticket); });
}

void Session::JudgeUpdate(const GraphRef& graph, wire::Ticket ticket) {
  if (state_ != State::kServing) return;
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
    update->renames |= node.kind == wire::GraphNodeKind::kHost;
  }
  if (!JudgeGraph(plan, kJudgeAtATime)) {
    return modules_.PostNext([] {}, [this, graph, ticket] { JudgeUpdate(graph, ticket); });
  }
  update->judged = true;
  TryUpdate(graph);
}

// Makes what updates have their turn: every launch before them is at CUDA, none behind.
void Session::TryUpdate(const GraphRef& graph) {
  while (!graph->updates.empty()) {
    Graph::Update& update = graph->updates.front();
    // The functions of running launches are still to be asked for under their old tokens.
    const bool tokens_in_use = update.renames && graph->in_flight != 0;
    if (!update.judged || update.running || update.launches_before != 0 || tokens_in_use) return;
    update.running = true;
    const PlanRef plan = update.plan;
    if (plan->result == CUDA_SUCCESS &&
        (plan->reader.nodes() > kUpdateAtOnce || graph->ChangesAttributes(*plan))) {
      return modules_.Post([graph, plan] { graph->Apply(plan.get()); },
                           [this, graph] {
                             if (state_ != State::kServing) return;
                             FinishUpdate(*graph);
                             TryUpdate(graph);
                           });
    }
    if (plan->result == CUDA_SUCCESS) graph->Apply(plan.get());
    FinishUpdate(*graph);
  }
}

void Session::FinishUpdate(Graph& graph) {
  const Graph::Update update = std::move(graph.updates.front());
  graph.updates.pop_front();
  graph.AdoptUpdate(*update.plan);
  if (graph.reservation() != nullptr) --graph.reservation()->busy;
  update.answer();
}

void Session::On(wire::Tag<wire::GraphLaunch>, const wire::GraphLaunch::Request& request,
                 const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Graph* graph = FindGraph(request.graph);
  if (graph == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  GraphWork work{graphs_.Find(request.graph)->graph, false, {}};
  // All of the launch waits, not the node alone: the record is an older command, so this is later
  // than it might be and never in a circle.
  for (const Graph::Wait& wait : graph->waits()) {
    const Event* event = parts_->events.Find(wait.event);
    if (event == nullptr || event->latest == nullptr || event->latest->done) continue;
    command.dependencies.push_back({event->latest->stream, event->latest->ticket, event->latest});
  }
  for (const Graph::Record& recorded : graph->records()) {
    Event* event = parts_->events.Find(recorded.event);
    if (event == nullptr) continue;  // destroyed since
    event->latest =
        std::make_shared<Point>(place_.device, request.stream, record.ticket, event->timing);
    event->latest->event = recorded.cuda->event;
    event->latest->event_owner = recorded.cuda;
    work.points.push_back(event->latest);
  }
  command.work = std::move(work);
  graph->OnQueued();
  streams_.Enqueue(*stream, std::move(command));
}

void Session::On(wire::Tag<wire::GraphUpload>, const wire::GraphUpload::Request& request,
                 const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Graph* graph = FindGraph(request.graph);
  if (graph == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = GraphWork{graphs_.Find(request.graph)->graph, true, {}};
  graph->OnQueued();
  streams_.Enqueue(*stream, std::move(command));
}

void Session::On(wire::Tag<wire::GraphDestroy>, const wire::GraphDestroy::Request& request,
                 const wire::Record&) {
  if (FindGraph(request.graph) != nullptr) graphs_.Take(request.graph);
}

// ---- at CUDA

bool Session::MayLaunchGraph(const GraphWork& work, wire::Ticket ticket) const {
  if (!work.graph->MayLaunch(ticket)) return false;
  const uint32_t waits = work.upload ? 0 : work.graph->waits_at_once();
  if (waits == 0) return true;
  return place_.graphs->waits + waits <= kMostGraphWaits &&
         (graph_waits_.at_once == 0 || graph_waits_.at_once + waits <= kMostSessionGraphWaits);
}

CUresult Session::SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work) {
  const Driver& cuda = place_.device->cuda();
  const GraphRef graph = work.graph;
  CUresult result = CUDA_SUCCESS;
  uint32_t waits = 0;
  if (graph->MayWait() && graph->in_flight == 0) graph_waits_.graphs.push_back(graph);
  if (work.upload) {
    if (!graph->IsUploaded()) result = cuda.cuGraphUpload(graph->exec(), stream.cuda);
  } else {
    std::optional<StandIn::Absence> absence;
    if (graph->MayWait()) absence.emplace(place_.stand_in);
    result = cuda.cuGraphLaunch(graph->exec(), stream.cuda);
    absence.reset();
    kernels_launched_ += graph->kernels();
    waits = graph->waits_at_once();
    graph_waits_.at_once += waits;
    place_.graphs->waits += waits;
  }
  ++graph->in_flight;
  stream.graphs.push_back({static_cast<uint64_t>(ticket), graph, waits, std::move(work.points)});
  graph->OnSubmitted();
  TryUpdate(graph);
  return result;
}

void Session::FinishGraphs(Stream& stream) {
  while (!stream.graphs.empty() && stream.graphs.front().ticket <= stream.completed) {
    const GraphRun run = std::move(stream.graphs.front());
    stream.graphs.pop_front();
    for (const PointRef& point : run.points) point->done = true;
    graph_waits_.at_once -= run.waits;
    place_.graphs->waits -= run.waits;
    if (--run.graph->in_flight != 0) continue;
    std::erase(graph_waits_.graphs, run.graph);
    TryUpdate(run.graph);
  }
}

// Nobody is left who would write what graphs wait for. Again and again: of several values for one
// place the GPU must find each there for a while.
void Session::LetGraphsGo() {
  if (graph_waits_.graphs.empty() || now_ns_ - graph_waits_.let_go_ns < kLetGoEveryNs) return;
  graph_waits_.let_go_ns = now_ns_;
  const Driver& cuda = place_.device->cuda();
  CUstream stream = place_.graphs->stream;
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
      if (!parts_->device_memory.OwnsDevice(wait.address, bytes) && !OwnsHost(wait.address, bytes))
        continue;
      any = true;
      ++written;
      place_.device->Judge(wait.wide
                               ? cuda.cuStreamWriteValue64_v2(stream, wait.address, wait.value, 0)
                               : cuda.cuStreamWriteValue32_v2(
                                     stream, wait.address, static_cast<uint32_t>(wait.value), 0));
    }
  }
  if (!any) return;
  if (graph_waits_.let_go == nullptr &&
      place_.device->TakeEvent(false, &graph_waits_.let_go) != CUDA_SUCCESS) {
    return;
  }
  place_.device->Judge(cuda.cuEventRecord(graph_waits_.let_go, stream));
}

// The memory must not go before what writes to it.
bool Session::GraphsLetGo() {
  if (graph_waits_.let_go == nullptr) return true;
  if (place_.device->Judge(place_.device->cuda().cuEventQuery(graph_waits_.let_go)) ==
      CUDA_ERROR_NOT_READY) {
    return false;
  }
  place_.device->GiveEvent(false, graph_waits_.let_go);
  graph_waits_.let_go = nullptr;
  return true;
}

void Session::ServeGraphCalls() {
  bool any = false;
  // A count that is impossible is for the ring thread to find again.
  if (state_ == State::kServing && !parts_->host_functions.Poll(&any)) return;
  PollGraphCalls();
  Notify();
}

// Asks the tenant for the functions that the GPU has come to. At the session's end the GPU goes on
// without them.
bool Session::PollGraphCalls() {
  bool any = false;
  size_t looks = 0;
  // Where the last round has stopped; all of them are a few as a rule.
  for (size_t turn = 0; turn < graph_waits_.graphs.size() && looks < kCallsAtATime; ++turn) {
    graph_waits_.turn = (graph_waits_.turn + 1) % graph_waits_.graphs.size();
    const GraphRef& graph = graph_waits_.graphs[graph_waits_.turn];
    auto& calls = graph->host_calls();
    looks += calls.size() + 1;
    for (uint32_t i = 0; i < calls.size(); ++i) {
      if (state_ != State::kServing) {
        if (graph->TakeReady(i) || calls[i].ready || calls[i].called) graph->SetDone(i);
        calls[i].ready = calls[i].called = false;
        continue;
      }
      if (calls[i].called) continue;
      if (!calls[i].ready && !(calls[i].ready = graph->TakeReady(i))) continue;
      calls[i].called =
          parts_->host_functions.Call(calls[i].token, [weak = std::weak_ptr(graph), i] {
            // Gone, or let go already, when the session has ended meanwhile.
            const GraphRef asker = weak.lock();
            if (asker == nullptr || !asker->host_calls()[i].called) return;
            asker->host_calls()[i].called = false;
            asker->SetDone(i);
          });
      if (!calls[i].called) continue;  // the board is full
      calls[i].ready = false;
      published_ = true;
      any = true;
    }
  }
  return any;
}

}  // namespace gpuloom::executor
