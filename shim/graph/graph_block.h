// SPDX-License-Identifier: Apache-2.0
// A graph's steps in the executor's format (proto/wire/graph_nodes.h), and what the graph needs in this process to run:
// host functions, staging memory.
//
// A step is one node on the wire, except for copies of pageable memory, which have a host function before or after the
// device's copy. A step's form never changes after instantiation.
//
// The GraphBlock owns the bytes, which are sent before it ends; the executable graph owns its LocalSteps. Called with
// the graph model's lock (GraphLock) held, by one thread. Failures are CUDA's codes.
#pragma once

#include <cstdint>

#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/growing.h"
#include "proto/wire/graph_commands.h"
#include "shim/graph/graph_staging.h"

namespace gpuloom {

enum class StepForm : uint8_t {
  kPlain,     // one node
  kHost,      // one node that runs `function`
  kHostCopy,  // one node that runs `function`: both sides of the copy are pageable
  kStageIn,   // a host node, then the copy
  kStageOut,  // the copy, then a host node
};

// The local part of a step.
struct LocalStep {
  StepForm form;
  uint32_t first;      // its first node on the wire
  uint64_t function;   // the host function's id; 0: none
  StagedCopy* staged;  // or null

  uint32_t last() const {
    return first + (form == StepForm::kStageIn || form == StepForm::kStageOut ? 1 : 0);
  }
};

// The reservation of a graph that has conditions, or of its executable graph's copy while that is made.
wire::ReservationId ReservationOf(const graph::Graph* graph);

// Frees the function and the staging memory of one step, which must not be able to run.
void FreeLocalStep(LocalStep* step);

// A growing block of bytes. An allocation that fails is remembered until the block is complete, and is then its error.
class GraphBlock {
 public:
  ~GraphBlock() { Free(); }
  GraphBlock() = default;
  GraphBlock(const GraphBlock&) = delete;
  GraphBlock& operator=(const GraphBlock&) = delete;

  // Makes the whole definition, and one LocalStep per step. On failure *culprit is the step that caused it, and the
  // caller frees what the LocalSteps hold.
  [[nodiscard]] CUresult MakeDefinition(const graph::Exec& exec, Growing<LocalStep>* steps,
                                        const graph::Step** culprit);
  // Makes an update. `replaced` receives the LocalSteps of the changed steps, in the order of `changes`.
  [[nodiscard]] CUresult MakeUpdate(const Growing<LocalStep>& steps,
                                    const graph::StepChange* changes, uint32_t count,
                                    Growing<LocalStep>* replaced, uint32_t* failed);

  const uint8_t* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  struct PendingNode {
    wire::GraphNode node;
    uint64_t body_offset;  // in bodies_
  };

  // The nodes of one step, from wire index `first` on.
  CUresult AddStep(const graph::NodeParams& params, uint32_t first, uint16_t flags,
                   LocalStep* local);
  CUresult AddKernel(const graph::KernelParams& kernel, uint32_t index, uint16_t flags);
  CUresult AddCopy(const Box& box, uint32_t index, uint16_t flags);
  CUresult AddMemcpy(const graph::NodeParams& params, uint32_t first, uint16_t flags,
                     LocalStep* local);
  CUresult AddHost(CUhostFn function, void* data, uint32_t index, LocalStep* local);
  CUresult AddBatch(const graph::BatchMemOpParams& batch, uint32_t index);
  // The step's bodies begin with `first_body` of the definition.
  CUresult AddConditional(const graph::Exec& exec, const graph::ConditionalParams& params,
                          uint32_t first_body, LocalStep* local);
  CUresult AddNode(uint32_t index, wire::GraphNodeKind kind, uint16_t flags);
  // Appends to the body of the node added last.
  void Append(const void* bytes, uint64_t size_bytes);
  template <typename T>
  void Append(const T& value) {
    Append(&value, sizeof(value));
  }
  CUresult Assemble(const Growing<wire::GraphEdge>& edges);
  void Free();

  Growing<PendingNode> nodes_;
  uint8_t* bodies_ = nullptr;
  uint64_t bodies_bytes_ = 0;
  uint64_t bodies_capacity_ = 0;
  bool no_room_ = false;
  uint8_t* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace gpuloom
