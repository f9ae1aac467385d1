// SPDX-License-Identifier: Apache-2.0
// What the machine's tests share: device memory, and running a kernel of some PTX text.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "agent/softgpu/exec/machine/grid.h"
#include "agent/softgpu/exec/machine/module.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

// An address space of a few allocations from this process's heap.
class TestMemory : public AddressSpace {
 public:
  uint64_t Allocate(size_t size_bytes, bool writable = true) {
    blocks_.emplace_back(size_bytes + kAlign);
    auto at = reinterpret_cast<uint64_t>(blocks_.back().data());
    at = (at + kAlign - 1) / kAlign * kAlign;
    const MutexLock lock(mutex_);
    ranges_.push_back({at, at + size_bytes, writable});
    return at;
  }
  template <class T>
  T* AllocateArray(size_t count) {
    return reinterpret_cast<T*>(Allocate(count * sizeof(T)));
  }
  // The range is gone, its bytes stay: what a kernel still touches meanwhile does no harm.
  void Unmap(uint64_t address) {
    const MutexLock lock(mutex_);
    for (Range& range : ranges_) {
      if (range.begin == address) range = {};
    }
    ++generation_;
  }
  Range Find(uint64_t address) const override {
    const MutexLock lock(mutex_);
    for (const Range& range : ranges_) {
      if (address >= range.begin && address < range.end) return range;
    }
    return {};
  }
  uint64_t generation() const override { return generation_; }

 private:
  static constexpr size_t kAlign = 256;
  std::vector<std::vector<std::byte>> blocks_;
  mutable Mutex mutex_;
  std::vector<Range> ranges_ GPULOOM_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{0};
};

// A module with its memory, and launches of its kernels.
class Machine {
 public:
  explicit Machine(std::string_view ptx) {
    module_ = Module::Load(
        ptx, [this](size_t size, size_t) { return memory.Allocate(size); }, &error_);
  }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const Module* module() const { return module_.get(); }

  template <class... Args>
  Outcome Launch(std::string_view kernel, Dim3 grid, Dim3 block, Args... args) {
    launch.module = module_.get();
    launch.kernel = module_ ? module_->FindKernel(kernel) : nullptr;
    if (launch.kernel == nullptr) {
      Outcome outcome;
      outcome.kind = Outcome::kIllegalInstruction;
      outcome.detail = "no kernel: " + error_;
      return outcome;
    }
    launch.grid = grid;
    launch.block = block;
    std::vector<std::byte> params(launch.kernel->param_bytes + 8);
    size_t i = 0;
    const auto put = [&](const auto& value) {
      std::memcpy(params.data() + launch.kernel->params.at(i++).offset_bytes, &value,
                  sizeof(value));
    };
    (put(args), ...);
    launch.params = params.data();
    return Run(launch, memory, stop);
  }

  TestMemory memory;
  Grid launch;  // dynamic_shared_bytes, cluster and cooperative stay as the test sets them
  std::atomic<bool> stop{false};

 private:
  std::string error_;
  std::unique_ptr<Module> module_;
};

}  // namespace gpuloom::softgpu
