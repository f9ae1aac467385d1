// SPDX-License-Identifier: Apache-2.0
// Feeds any text to Module::Load, and runs a small grid of each kernel that loads, for a moment:
// what the decoder let through must not do harm.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/softgpu/exec/machine/grid.h"
#include "agent/softgpu/exec/machine/module.h"

namespace gpuloom::softgpu {
namespace {

// All device memory of one input. More than this a module may not have here.
constexpr size_t kMaxGlobalBytes = size_t{1} << 20;
constexpr size_t kScratchBytes = 4096;

// The machine's memory: whatever the module's variables and RunKernels() ask for, and nothing else.
// Under AddressSanitizer any other access ends the run.
class FuzzMemory : public AddressSpace {
 public:
  uint64_t Allocate(size_t size_bytes) {
    if (size_bytes > kMaxGlobalBytes) return 0;
    // Words of 16 bytes: variables with larger alignment only miss it, which is harmless.
    blocks_.push_back(std::make_unique<Word[]>((size_bytes + 15) / 16));
    const auto at = reinterpret_cast<uint64_t>(blocks_.back().get());
    ranges_.push_back({at, at + size_bytes, true});
    return at;
  }
  Range Find(uint64_t address) const override {
    for (const Range& range : ranges_) {
      if (address >= range.begin && address < range.end) return range;
    }
    return {};
  }
  // Blocks stay until the input is done, so no range is ever taken away.
  uint64_t generation() const override { return 0; }

 private:
  struct alignas(16) Word {
    uint64_t halves[2];
  };
  std::vector<std::unique_ptr<Word[]>> blocks_;
  std::vector<Range> ranges_;
};

// Sets `stop` a few milliseconds after Start, again and again. One for all inputs; its thread ends
// with the process.
class Watchdog {
 public:
  Watchdog() : thread_([this] { Loop(); }) { thread_.detach(); }
  void Start() {
    const std::lock_guard lock(mutex_);
    stop = false;
    deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    armed_ = true;
    wake_.notify_one();
  }
  std::atomic<bool> stop{false};

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return armed_; });
      while (std::chrono::steady_clock::now() < deadline_) wake_.wait_until(lock, deadline_);
      armed_ = false;
      stop = true;
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::chrono::steady_clock::time_point deadline_;
  bool armed_ = false;
  std::thread thread_;
};

void RunKernels(const Module& module, FuzzMemory& memory) {
  static Watchdog* const watchdog = new Watchdog();
  const uint64_t scratch = memory.Allocate(kScratchBytes);
  for (const Kernel& kernel : module.kernels()) {
    // Every parameter is the address of scratch memory, so that kernels which take pointers get
    // somewhere.
    std::vector<uint64_t> params(kernel.param_bytes / 8 + 1, scratch);
    Grid grid;
    grid.module = &module;
    grid.kernel = &kernel;
    // More than one block and more than one warp, the last of them incomplete.
    grid.grid = {2};
    grid.block = {40};
    grid.dynamic_shared_bytes = 64;
    grid.params = reinterpret_cast<const std::byte*>(params.data());
    watchdog->Start();
    const Outcome outcome = Run(grid, memory, watchdog->stop);
    if (outcome.kind != Outcome::kOk && outcome.kind != Outcome::kStopped &&
        outcome.detail.empty()) {
      std::abort();
    }
  }
}

}  // namespace
}  // namespace gpuloom::softgpu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpuloom::softgpu;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  FuzzMemory memory;
  std::string error;
  const std::unique_ptr<Module> module = Module::Load(
      text, [&](size_t bytes, size_t) { return memory.Allocate(bytes); }, &error);
  // An error without a text, or a module with one, is a mistake of ours.
  if ((module == nullptr) == error.empty()) std::abort();
  if (module != nullptr) RunKernels(*module, memory);
  return 0;
}
