// SPDX-License-Identifier: Apache-2.0
// One run of an executable graph: its steps on the calling thread, and on a few more where branches
// of the graph are independent of each other, so that one branch may wait for memory or for the
// host while another goes on. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/softgpu/exec/machine/conditional.h"

namespace gpuloom::softgpu {

// What a conditional node does in place of a function: runs bodies by the condition's value.
struct GraphBranch {
  enum class Kind : uint8_t { kIf, kWhile, kSwitch };
  Kind kind = Kind::kIf;
  std::shared_ptr<Condition> condition;
  uint32_t first_body = 0;  // GraphProgram::shapes
  uint32_t bodies = 0;
};

struct GraphStep {
  std::function<void()> run;  // empty: for order only. May run again and again, never twice at once
  bool enabled = true;        // false: skipped, the order stays
  std::shared_ptr<const GraphBranch> branch;  // if set, `run` is empty
};

// Steps in topological order: the graph's own, then those of each body. Shapes never change; steps
// are replaced in a copy.
struct GraphProgram {
  std::vector<std::shared_ptr<const GraphStep>> steps;
  // Steps are counted from `first` here.
  struct Shape {
    uint32_t first = 0;
    std::vector<uint32_t> waits;                // how many steps a step waits for
    std::vector<std::vector<uint32_t>> behind;  // the steps that wait for a step
    uint32_t width = 1;                         // the most steps that can be ready at once
  };
  std::vector<std::shared_ptr<const Shape>> shapes;  // the graph's own, then each body's
  std::vector<std::shared_ptr<Condition>> conditions;
};

// `dependencies`: pairs of steps, the first before the second, in any order.
std::shared_ptr<const GraphProgram::Shape> MakeShape(
    uint32_t first, uint32_t steps, const std::vector<std::pair<uint32_t, uint32_t>>& dependencies);

// How many of the graph's own steps can begin at once, when the graph does.
uint32_t HeadsOf(const GraphProgram& program);

// Returns when every step has run, or was passed over because of a fault or the process's end.
void RunGraph(const GraphProgram& program);

}  // namespace gpuloom::softgpu
