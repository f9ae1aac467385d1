// SPDX-License-Identifier: Apache-2.0
// What the graph model needs from this driver: executable graphs become programs of steps
// (graph_run.h), and a launch is one piece of a stream's work.
#include <utility>
#include <vector>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/copy.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/graph_run.h"
#include "agent/softgpu/driver/launch.h"
#include "agent/softgpu/driver/memory_operation.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/exec.h"

namespace gpuloom::softgpu {

// The node's own context, if it has one that lives; else the caller's. An attribute that this
// driver does not execute is left out, as in a launch.
CUresult PrepareKernel(const graph::KernelParams& params, std::function<void()>& run) {
  auto* context = FindContext(params.context);
  if (context == nullptr) context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(FindFunction(context->Owner(), params.handle(), found));
  LaunchShape shape;
  shape.grid = {params.grid[0], params.grid[1], params.grid[2]};
  shape.block = {params.block[0], params.block[1], params.block[2]};
  shape.dynamic_shared_bytes = params.dynamic_shared_bytes;
  if (const auto* cooperative =
          graph::FindKernelAttribute(params, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) {
    shape.cooperative = cooperative->cooperative != 0;
  }
  if (const auto* cluster =
          graph::FindKernelAttribute(params, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)) {
    shape.cluster = {cluster->clusterDim.x, cluster->clusterDim.y, cluster->clusterDim.z};
    shape.has_clusters = true;
  }
  // The parameters were packed when the node was made, so the launch gets them in CUDA's buffer
  // form.
  size_t bytes = params.param_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  return PrepareLaunch(found, shape, nullptr, bytes == 0 ? nullptr : extra, run);
}

}  // namespace gpuloom::softgpu

namespace gpuloom::graph {
namespace {

using namespace gpuloom::softgpu;  // this file joins the two

// What this driver keeps for an Exec. Queued runs hold the program that they will run.
struct Program {
  std::shared_ptr<GraphProgram> current;
  bool is_shared = false;  // some run has `current`, which may not change any more
  // By step; empty for other kinds.
  std::vector<std::shared_ptr<Event>> records;
  std::vector<std::shared_ptr<Event>> waits;
  Point last;  // of the runs queued so far
  std::shared_ptr<std::vector<HardwareQueues::Place>> heads =
      std::make_shared<std::vector<HardwareQueues::Place>>();  // as Work's
};

Program* ProgramOf(const Exec* exec) { return static_cast<Program*>(exec->driver); }

CUresult PrepareMemset(const CUDA_MEMSET_NODE_PARAMS_v2& params, std::function<void()>& run) {
  Fill fill;
  fill.address = params.dst;
  fill.value = params.value;
  fill.element_bytes = params.elementSize;
  fill.width = params.width;
  fill.height = params.height;
  fill.pitch_bytes = params.pitch;
  return PrepareFill(fill, run);
}

// The step's function. Everything that can be checked is checked here, at instantiation or update,
// as CUDA does.
CUresult PrepareStep(const NodeParams& params, std::function<void()>& run) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return PrepareKernel(params.kernel, run);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      Copy copy;
      const CUresult result = DescribeCopy(params.memcpy.copy, copy);
      return result == CUDA_SUCCESS ? PrepareCopy(copy, run) : result;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return PrepareMemset(params.memset, run);
    case CU_GRAPH_NODE_TYPE_HOST:
      run = [function = params.host.fn, data = params.host.userData] {
        const InsideHostFunction inside;
        function(data);
      };
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      std::vector<MemoryOperation> operations;
      const CUresult result = Describe(params.batch.operations, params.batch.count, operations);
      return result == CUDA_SUCCESS ? Prepare(std::move(operations), run) : result;
    }
    // These only order others. The memory of an allocation node lives as long as its graph.
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:  // AddBranches
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Puts the step at its place. `steps` is not yet seen by any run. Event nodes have no function:
// their events are looked at in each launch, because what "the latest recording" is depends on when
// that is.
CUresult SetStep(Program* program, std::vector<std::shared_ptr<const GraphStep>>* steps,
                 uint32_t place, const NodeParams& params, bool enabled) {
  auto step = std::make_shared<GraphStep>();
  step->enabled = enabled;
  const bool is_event = params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ||
                        params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  if (is_event) {
    auto event = Registry<Event>::Instance().Find(params.event);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    auto& events = params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? program->waits : program->records;
    events[place] = std::move(event);
  } else {
    CUDA_RETURN_IF_ERROR(PrepareStep(params, step->run));
  }
  (*steps)[place] = std::move(step);
  return CUDA_SUCCESS;
}

// The conditions that the handles of a graph stand for. They belong to the root graph, and are
// shared by all executable graphs made from it.
using Conditions = std::vector<std::shared_ptr<softgpu::Condition>>;
Conditions* ConditionsOf(const Graph* root) { return static_cast<Conditions*>(root->reservation); }

// The steps of the conditional nodes get their bodies.
void AddBranches(const Exec& exec, GraphProgram* program) {
  const Definition& definition = exec.definition;
  if (definition.bodies.count() == 0) return;
  program->conditions = *ConditionsOf(exec.graph);
  // Bodies lie one behind the other, those of one node together; the loop goes from node to node.
  for (uint32_t i = 0; i < definition.bodies.count();) {
    const uint32_t owner = definition.bodies[i].owner;
    const ConditionalParams& params = definition.steps[owner].node->params.conditional;
    auto branch = std::make_shared<GraphBranch>();
    branch->kind = params.kind == CU_GRAPH_COND_TYPE_IF      ? GraphBranch::Kind::kIf
                   : params.kind == CU_GRAPH_COND_TYPE_WHILE ? GraphBranch::Kind::kWhile
                                                             : GraphBranch::Kind::kSwitch;
    branch->condition = softgpu::Condition::Find(params.handle);
    branch->first_body = i + 1;  // behind the graph's own shape
    branch->bodies = params.count;
    i += params.count;
    auto step = std::make_shared<GraphStep>();
    step->branch = std::move(branch);
    program->steps[owner] = std::move(step);
  }
}

std::shared_ptr<const GraphProgram::Shape> ShapeOf(const Definition& definition, uint32_t first,
                                                   uint32_t count) {
  std::vector<std::pair<uint32_t, uint32_t>> dependencies;
  for (uint32_t i = first; i < first + count; ++i) {
    const Step& step = definition.steps[i];
    for (uint32_t d = 0; d < step.dependency_count; ++d) {
      dependencies.emplace_back(definition.dependencies[step.first_dependency + d].step, i);
    }
  }
  return MakeShape(first, count, dependencies);
}

CUresult FindLaunchStream(CUstream handle, DefaultStream null_means,
                          std::shared_ptr<Stream>* stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  *stream = FindStream(*context, handle, null_means);
  return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

// The executable graph is made as a whole or not at all: on failure `program` goes, and
// exec->driver stays null.
CUresult DriverInstantiate(Exec* exec, Node** culprit) {
  const Definition& definition = exec->definition;
  const auto count = static_cast<uint32_t>(definition.steps.count());
  auto program = std::make_unique<Program>();
  program->records.resize(count);
  program->waits.resize(count);
  auto made = std::make_shared<GraphProgram>();
  made->steps.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const Step& step = definition.steps[i];
    const CUresult result =
        SetStep(program.get(), &made->steps, i, step.node->params, step.node->enabled);
    if (result != CUDA_SUCCESS) {
      if (culprit != nullptr) *culprit = step.node;
      return result;
    }
  }
  // The steps of bodies follow behind the graph's own.
  const uint32_t own = definition.bodies.count() == 0 ? count : definition.bodies[0].first;
  made->shapes.push_back(ShapeOf(definition, 0, own));
  for (const Body& body : definition.bodies) {
    made->shapes.push_back(ShapeOf(definition, body.first, body.count));
  }
  AddBranches(*exec, made.get());
  program->current = std::move(made);
  exec->driver = program.release();
  return CUDA_SUCCESS;
}

CUresult DriverMakeCondition(Graph* root, unsigned default_value, unsigned flags,
                             CUgraphConditionalHandle* handle) {
  if (root->reservation == nullptr) root->reservation = new Conditions;
  ConditionsOf(root)->push_back(
      softgpu::Condition::Make(default_value, (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0));
  *handle = ConditionsOf(root)->back()->handle();
  return CUDA_SUCCESS;
}

void DriverDropConditions(Graph* root) {
  delete ConditionsOf(root);
  root->reservation = nullptr;
}

CUresult DriverUpdate(Exec* exec, const StepChange* changes, uint32_t count, uint32_t* failed) {
  Program* program = ProgramOf(exec);
  // A run that is queued goes on with the program that it was queued with: a shared one is copied
  // before it is changed.
  if (program->is_shared) {
    program->current = std::make_shared<GraphProgram>(*program->current);
    program->is_shared = false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const CUresult result = SetStep(program, &program->current->steps, changes[i].place,
                                    *changes[i].params, changes[i].enabled);
    if (result != CUDA_SUCCESS) {
      if (failed != nullptr) *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult DriverLaunch(Exec* exec, CUstream handle, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  CUDA_RETURN_IF_ERROR(FindLaunchStream(handle, null_means, &stream));
  Program* program = ProgramOf(exec);
  Work work;
  work.on_device = true;
  // Runs of one graph never overlap, whatever their streams: steps may run again, never twice at
  // once (graph_run.h).
  if (!program->last.Done()) work.after.push_back(program->last);
  for (const auto& event : program->waits) {
    const auto recording = event == nullptr ? nullptr : event->Latest();
    if (recording != nullptr && !recording->point.Done()) work.after.push_back(recording->point);
  }
  std::shared_ptr<const GraphProgram> run = program->current;
  program->is_shared = true;
  std::shared_ptr<GraphProgram> recorder;
  std::vector<std::shared_ptr<Event>> events;
  std::vector<std::shared_ptr<Recording>> recordings;
  for (uint32_t i = 0; i < program->records.size(); ++i) {
    if (program->records[i] == nullptr) continue;
    auto recording = std::make_shared<Recording>();
    auto step = std::make_shared<GraphStep>();
    step->run = [recording] { recording->Now(); };
    // Each run has recordings of its own, so a graph with event records gets a copy of the program
    // for every launch. Graphs without them run the shared one.
    if (recorder == nullptr) run = recorder = std::make_shared<GraphProgram>(*run);
    recorder->steps[i] = std::move(step);
    events.push_back(program->records[i]);
    recordings.push_back(std::move(recording));
  }
  if (const uint32_t heads = HeadsOf(*run); heads > 1) {
    program->heads->resize(heads - 1);
    work.heads = program->heads;
  }
  work.run = [run] { RunGraph(*run); };
  program->last = stream->context.Enqueue(*stream, std::move(work));
  // The whole graph is one point: an event recorded in its middle has the time of its place, but
  // counts as done when all of the graph is.
  for (size_t i = 0; i < events.size(); ++i) {
    recordings[i]->point = program->last;
    events[i]->SetLatest(recordings[i]);
  }
  return CUDA_SUCCESS;
}

CUresult DriverUpload(Exec*, CUstream handle, DefaultStream null_means) {
  std::shared_ptr<Stream> stream;
  return FindLaunchStream(handle, null_means, &stream);
}

// The last run is enough: runs of one graph do not overlap.
bool DriverDone(const Exec& exec) { return ProgramOf(&exec)->last.Done(); }
void DriverFinish(Exec* exec) { ProgramOf(exec)->last.Wait(); }

void DriverDestroy(Exec* exec) {
  delete ProgramOf(exec);
  exec->driver = nullptr;
}

}  // namespace gpuloom::graph
