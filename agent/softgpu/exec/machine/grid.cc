// SPDX-License-Identifier: Apache-2.0
// How a grid's blocks are divided among threads.
//
// The calling thread always runs blocks. When the grid lasts, threads of the crew run blocks of it,
// too, each with a Runner of its own: warps, shared memory and the cache of address ranges are
// private to a thread, and only Course is shared.
#include "agent/softgpu/exec/machine/grid.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/crew.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// A launch that the driver should not have let through. It becomes a fault of the grid, so that a
// mistake of ours is seen by the program and not by the host's memory.
Outcome Refuse(const Grid& grid, const char* why) {
  Outcome outcome;
  outcome.kind = Outcome::kIllegalInstruction;
  outcome.detail = "kernel " + (grid.kernel != nullptr ? grid.kernel->name : "?") + ": " + why;
  return outcome;
}

// Null: nothing is wrong. Products are made in 64 bits, as the dimensions come from the caller.
const char* FindMistake(const Grid& grid) {
  if (grid.module == nullptr || grid.kernel == nullptr || grid.kernel->code == nullptr) {
    return "there is no code to run";
  }
  const Dim3& block = grid.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (block.x > kMaxThreadsPerBlock || block.y > kMaxThreadsPerBlock || threads == 0 ||
      threads > kMaxThreadsPerBlock) {
    return "a block has 1 to 1024 threads";
  }
  if (uint64_t{grid.kernel->static_shared_bytes} + grid.dynamic_shared_bytes >
      kMaxSharedBytesPerBlock) {
    return "too much shared memory";
  }
  const Dim3& cluster = grid.cluster;
  // 16 blocks is the most that a cluster may have with non-portable sizes; rank masks of multicast
  // copies have 16 bits.
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 ||
      uint64_t{cluster.x} * cluster.y * cluster.z > 16 || grid.grid.x % cluster.x != 0 ||
      grid.grid.y % cluster.y != 0 || grid.grid.z % cluster.z != 0) {
    return "the cluster does not divide the grid";
  }
  if (grid.params == nullptr && grid.kernel->param_bytes != 0) return "there are no parameters";
  return nullptr;
}

// A grid that runs for less than this is not worth waking other threads.
constexpr std::chrono::microseconds kAlone{100};

// What the threads that run a grid's blocks share: which blocks are left, and how the grid ended.
//
// Blocks are taken in rising order. After a fault those behind it end, as if they had never begun,
// and those before it run on: the fault of the lowest block is the grid's, as if they had run in
// order.
class Course {
 public:
  explicit Course(uint64_t blocks) : end_(blocks) {}

  // The first of `count` blocks to run; false when none are left.
  bool Take(uint64_t count, uint64_t* first) {
    // Relaxed everywhere: the counter only hands out numbers, and what blocks write for each other
    // is ordered by the program's own fences. The end of the grid is ordered by Crew::Help, whose
    // destructor waits under a lock.
    *first = next_.fetch_add(count, std::memory_order_relaxed);
    return *first < end_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool HasMore(uint64_t count) const {
    return next_.load(std::memory_order_relaxed) + count < end_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool IsOver(uint64_t block) const {
    return block >= end_.load(std::memory_order_relaxed);
  }
  // A later fault in an earlier block replaces what an earlier fault in a later block reported.
  void EndAt(uint64_t block, Outcome outcome) {
    const MutexLock lock(mutex_);
    if (block >= end_.load(std::memory_order_relaxed)) return;
    end_.store(block, std::memory_order_relaxed);
    outcome_ = std::move(outcome);
  }
  void Count(uint64_t instructions) { instructions_.fetch_add(instructions); }
  Outcome TakeOutcome() {
    const MutexLock lock(mutex_);
    outcome_.instructions = instructions_.load();
    return std::move(outcome_);
  }

 private:
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> end_;
  std::atomic<uint64_t> instructions_{0};
  Mutex mutex_;
  Outcome outcome_ GPULOOM_GUARDED_BY(mutex_);
};

// The linear-th block, warp or cluster, with x counting fastest.
Dim3 Split(uint64_t linear, const Dim3& size) {
  return {static_cast<uint32_t>(linear % size.x), static_cast<uint32_t>(linear / size.x % size.y),
          static_cast<uint32_t>(linear / size.x / size.y)};
}

// One thread's blocks: as many as are resident at once, reused again and again.
class Runner {
 public:
  Runner(const GridRun& like, Course& course) : run_(like), course_(course) {
    // Blocks of a cluster wait for each other, and so may all blocks of a cooperative grid: they
    // must be resident together, and as they share a thread, Turn() switches between them.
    const Dim3& cluster = run_.grid.cluster;
    const Dim3& size = run_.grid.grid;
    per_cluster_ = uint64_t{cluster.x} * cluster.y * cluster.z;
    resident_ = run_.grid.cooperative ? uint64_t{size.x} * size.y * size.z : per_cluster_;
    for (uint64_t i = 0; i < resident_; ++i) blocks_.push_back(std::make_unique<Block>(run_));
  }
  // When the thread stops, for whatever reason, the instructions that it has executed are counted.
  ~Runner() { course_.Count(run_.instructions); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs the next blocks. False when none were left.
  bool RunNext() {
    // Taken before Start(), so that each block is begun by one thread only.
    uint64_t first = 0;
    if (!course_.Take(resident_, &first)) return false;
    try {
      Start(first);
      RunResident(first);
    } catch (const std::bad_alloc&) {
      run_.outcome.kind = Outcome::kOutOfMemory;
      run_.outcome.detail =
          "kernel " + run_.grid.kernel->name + ": the host has no memory for its blocks";
    }
    if (run_.outcome.kind == Outcome::kOk) return true;
    course_.EndAt(first, std::move(run_.outcome));
    return false;
  }
  [[nodiscard]] uint64_t resident() const { return resident_; }

 private:
  void Start(uint64_t first) {
    const Dim3& size = run_.grid.grid;
    const Dim3& cluster = run_.grid.cluster;
    // Block numbers run through whole clusters first: a cluster is what is taken from the Course,
    // so its blocks must be neighbors in this order, which is not the order of grid coordinates.
    const Dim3 clusters = {size.x / cluster.x, size.y / cluster.y, size.z / cluster.z};
    for (uint64_t i = 0; i < resident_; ++i) {
      const Dim3 of = Split((first + i) / per_cluster_, clusters);
      const Dim3 in = Split((first + i) % per_cluster_, cluster);
      Block& block = *blocks_[i];
      block.Start({of.x * cluster.x + in.x, of.y * cluster.y + in.y, of.z * cluster.z + in.z});
      block.cluster.clear();
      block.cluster_rank = static_cast<uint32_t>(i % per_cluster_);
      for (uint64_t peer = 0; peer < per_cluster_; ++peer) {
        block.cluster.push_back(blocks_[i / per_cluster_ * per_cluster_ + peer].get());
      }
    }
  }

  // Until all resident blocks are done. Each gets a turn; between turns is where a stop, a fault of
  // a lower block and memory that was unmapped are noticed, so a turn bounds how late they are.
  void RunResident(uint64_t first) {
    while (true) {
      bool progress = false;
      bool done = true;
      for (const std::unique_ptr<Block>& block : blocks_) {
        if (block->done()) continue;
        done = false;
        progress |= block->Turn();
        if (run_.outcome.kind != Outcome::kOk) return;
        // `course_.IsOver`: a block below this one has faulted, and what this one does no longer
        // counts.
        if (run_.stop.load(std::memory_order_relaxed) || course_.IsOver(first)) {
          run_.outcome.kind = Outcome::kStopped;
          return;
        }
        // No pointer into a mapped range is kept from one turn to the next.
        run_.ranges.Refresh();
      }
      // Every resident warp may wait for another block or another grid, which needs the processor.
      if (run_.waited) {
        run_.waited = false;
        std::this_thread::yield();
      }
      if (done) return;
      // Threads that only wait at barriers do not become runnable by themselves. Lanes that poll,
      // as at a cluster's barrier or an mbarrier, count as progress: whether they wait in vain is
      // not decidable here.
      if (!progress) {
        run_.outcome.kind = Outcome::kDeadlock;
        run_.outcome.detail = "kernel " + run_.grid.kernel->name +
                              ": every thread waits at a barrier for another one";
        return;
      }
    }
  }

  GridRun run_;
  Course& course_;
  uint64_t per_cluster_ = 1;
  uint64_t resident_ = 1;
  std::vector<std::unique_ptr<Block>> blocks_;
};

// For a thread of the crew. It makes its own Runner; if there is no memory for one, it just does
// not help.
void HelpRun(const GridRun& like, Course& course) {
  try {
    Runner runner(like, course);
    while (runner.RunNext()) {
    }
  } catch (const std::bad_alloc&) {
    // The others run its blocks.
  }
}

void RunBlocks(const GridRun& like, Course& course) {
  Runner runner(like, course);
  const auto started = std::chrono::steady_clock::now();
  // A kernel whose result may depend on the order of its blocks is not helped: its blocks run in
  // rising order on this thread.
  const bool alone = like.grid.kernel->in_order || Crew::Instance().size() <= 1;
  std::optional<Crew::Help> help;
  while (runner.RunNext()) {
    // Asked once, and only when more blocks are left than this thread takes next: waking threads
    // costs more than a short grid.
    if (alone || help || !course.HasMore(runner.resident())) continue;
    if (std::chrono::steady_clock::now() - started < kAlone) continue;
    // Help must end before `runner` and `course`, to which the helpers refer; its destructor waits
    // for them.
    help.emplace([&] { HelpRun(like, course); });
  }
}

}  // namespace

Outcome Run(const Grid& grid, const AddressSpace& memory, const std::atomic<bool>& stop) {
  if (const char* mistake = FindMistake(grid)) return Refuse(grid, mistake);
  // Unique in this process, as %gridid is on a device.
  static std::atomic<uint64_t> next_grid_id{1};
  try {
    GridRun run(grid, memory, stop);
    run.grid_id = next_grid_id.fetch_add(1, std::memory_order_relaxed);
    run.params.resize(grid.kernel->param_bytes);
    if (grid.kernel->param_bytes != 0) {
      std::memcpy(run.params.data(), grid.params, grid.kernel->param_bytes);
    }
    // Dynamic shared memory begins behind the static part, aligned as the strictest extern
    // declaration of the module asks.
    const uint32_t align = grid.module->program().dynamic_shared_align_bytes;
    run.dynamic_shared_base = (grid.kernel->static_shared_bytes + align - 1) / align * align;
    run.shared_bytes = grid.dynamic_shared_bytes == 0
                           ? grid.kernel->static_shared_bytes
                           : run.dynamic_shared_base + grid.dynamic_shared_bytes;
    Course course(uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z);
    RunBlocks(run, course);
    return course.TakeOutcome();
  } catch (const std::bad_alloc&) {
    Outcome outcome;
    outcome.kind = Outcome::kOutOfMemory;
    outcome.detail = "kernel " + grid.kernel->name + ": the host has no memory for its blocks";
    return outcome;
  }
}

}  // namespace gpuloom::softgpu
