// One run of an executable graph: its steps on the calling thread, and on a few more where branches
// of the graph are independent of each other, so that one branch may wait for memory or for the
// host while another goes on. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gpuloom::softgpu {

struct GraphStep {
  std::function<void()> run;  // empty: only order. May run again and again, never twice at once
  bool enabled = true;        // false: passed over, the order stays
};

// Steps in topological order. The shape never changes; steps are replaced in a copy.
struct GraphProgram {
  std::vector<std::shared_ptr<const GraphStep>> steps;
  struct Shape {
    std::vector<uint32_t> waits;                // how many steps a step waits for
    std::vector<std::vector<uint32_t>> behind;  // who waits for a step
    uint32_t width = 1;                         // so many steps can be ready at once, at most
  };
  std::shared_ptr<const Shape> shape;
};

// `dependencies`: pairs of steps, the first before the second, in any order.
std::shared_ptr<const GraphProgram::Shape> MakeShape(
    uint32_t steps, const std::vector<std::pair<uint32_t, uint32_t>>& dependencies);

// Returns when every step has run, or was passed over because of a fault or the process's end.
void RunGraph(const GraphProgram& program);

}  // namespace gpuloom::softgpu
