// SPDX-License-Identifier: Apache-2.0
// Managed memory (cuMemAllocManaged, and a `__managed__` variable): kernels that write all of it, and the host's reads
// behind them.
#include <cstring>
#include <string>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

enum class What {
  kFirstPass,  // the first kernel after the host has written all of it
  kKernels,    // those after it
  kReadBack,   // the host reads all of it after a kernel
  kVariable,   // the same kernels as kKernels, in a variable
};

double RateOf(size_t bytes, uint64_t start_ns) {
  return static_cast<double>(bytes) / static_cast<double>(NowNs() - start_ns);
}

// One kernel over all of it, and its end.
double Pass(Gpu& gpu, CUdeviceptr memory, size_t bytes, uint32_t seed) {
  const uint64_t start_ns = NowNs();
  gpu.Ok(gpu.LaunchFill(memory, seed, static_cast<uint32_t>(bytes / 4)), "cuLaunchKernel");
  gpu.Synchronize();
  return RateOf(bytes, start_ns);
}

// Reads all words, as a program does. The sum tells whether one of them is of an earlier pass.
uint64_t Sum(const uint32_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// The memory of one line: an allocation, or a library's variable.
class Memory {
 public:
  Memory(Gpu& gpu, What what, size_t bytes) : gpu_(gpu) {
    if (what != What::kVariable) {
      gpu.Ok(gpu.cu().cuMemAllocManaged(&address_, bytes, CU_MEM_ATTACH_GLOBAL),
             "cuMemAllocManaged");
      return;
    }
    const std::string image =
        ".version 8.0\n.target sm_70\n.address_size 64\n"
        ".visible .global .attribute(.managed) .align 4 .b8 all[" +
        std::to_string(bytes) + "];\n";
    if (gpu.Ok(gpu.cu().cuLibraryLoadData(&library_, image.c_str(), nullptr, nullptr, 0, nullptr,
                                          nullptr, 0),
               "cuLibraryLoadData")) {
      gpu.Ok(gpu.cu().cuLibraryGetManaged(&address_, nullptr, library_, "all"),
             "cuLibraryGetManaged");
    }
  }
  ~Memory() {
    if (library_ != nullptr) {
      gpu_.Ok(gpu_.cu().cuLibraryUnload(library_), "cuLibraryUnload");
    } else if (address_ != 0) {
      gpu_.Ok(gpu_.cu().cuMemFree_v2(address_), "cuMemFree");
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  CUdeviceptr address() const { return address_; }

 private:
  Gpu& gpu_;
  CUdeviceptr address_ = 0;
  CUlibrary library_ = nullptr;
};

void Collect(Gpu& gpu, const Plan& plan, What what, size_t bytes, std::vector<double>& samples) {
  const Memory owner(gpu, what, bytes);
  const CUdeviceptr memory = owner.address();
  if (memory == 0) return;
  auto* words = reinterpret_cast<uint32_t*>(memory);
  const bool kernels = what == What::kKernels || what == What::kVariable;
  const int times = plan.Times(kernels ? 20 : 5, 1);
  std::memset(words, 0x11, bytes);
  if (kernels) Pass(gpu, memory, bytes, 1);
  for (int i = 0; i < times && !gpu.failed(); ++i) {
    const uint32_t seed = 100 + static_cast<uint32_t>(i);
    if (what == What::kFirstPass) std::memset(words, 0x11 + i, bytes);
    const double rate = Pass(gpu, memory, bytes, seed);
    if (what != What::kReadBack) {
      samples.push_back(rate);
      continue;
    }
    const uint64_t start_ns = NowNs();
    const uint64_t sum = Sum(words, bytes / 4);
    samples.push_back(RateOf(bytes, start_ns));
    uint64_t expected = 0;
    for (uint32_t at = 0; at < bytes / 4; ++at) expected += seed + 3 * at;  // as kernels.h says
    if (!gpu.failed() && sum != expected) gpu.Wrong("the host did not read what the kernel wrote");
  }
}

}  // namespace

bool MeasureManaged(Gpu& gpu, const Plan& plan) {
  const size_t bytes = plan.full ? 512 * kMiB : kMiB;
  const std::string size = plan.full ? "512MiB" : "1MiB";
  struct Line {
    const char* name;
    What what;
  };
  constexpr Line kLines[] = {{"managed_first_pass_", What::kFirstPass},
                             {"managed_kernels_", What::kKernels},
                             {"managed_variable_", What::kVariable},
                             {"managed_read_back_", What::kReadBack}};
  bool good = true;
  for (const Line& line : kLines) {
    good &= RunLine(gpu, plan, line.name + size, "GB/s", [&](std::vector<double>& samples) {
      Collect(gpu, plan, line.what, bytes, samples);
    });
  }
  return good;
}

}  // namespace gpuloom::bench
