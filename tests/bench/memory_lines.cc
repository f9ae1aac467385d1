// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

struct Size {
  size_t bytes;
  const char* name;
  int full_count;
  bool tiny;  // Part of the tiny plan: software drivers may have little memory and no speed.
  // Copies to one synchronisation in the queued line, 0 for none: a large copy is its own queue.
  int queued;
};

constexpr Size kSizes[] = {
    {4 * kKiB, "4KiB", 1000, true, 0},    {64 * kKiB, "64KiB", 500, true, 64},
    {1 * kMiB, "1MiB", 200, true, 16},    {16 * kMiB, "16MiB", 50, true, 0},
    {256 * kMiB, "256MiB", 10, false, 0}, {1024 * kMiB, "1GiB", 4, false, 0},
};

enum class Direction { kToDevice, kToHost };

// Two host buffers of the same kind, and device memory, of one size.
struct Buffers {
  char* host = nullptr;
  char* other = nullptr;
  CUdeviceptr device = 0;
  size_t bytes = 0;
  bool pinned = false;
};

bool Allocate(Gpu& gpu, size_t bytes, bool pinned, Buffers& buffers) {
  buffers.bytes = bytes;
  buffers.pinned = pinned;
  if (!gpu.Ok(gpu.cu().cuMemAlloc_v2(&buffers.device, bytes), "cuMemAlloc")) return false;
  for (char** host : {&buffers.host, &buffers.other}) {
    void* memory = nullptr;
    if (pinned) {
      if (!gpu.Ok(gpu.cu().cuMemHostAlloc(&memory, bytes, 0), "cuMemHostAlloc")) return false;
    } else {
      memory = std::aligned_alloc(4096, bytes);
      if (memory == nullptr) return gpu.Wrong("out of host memory");
    }
    *host = static_cast<char*>(memory);
    std::memset(memory, 0x11, bytes);  // Page faults are not what is measured.
  }
  return true;
}

void Free(Gpu& gpu, Buffers& buffers) {
  if (buffers.device != 0) gpu.Ok(gpu.cu().cuMemFree_v2(buffers.device), "cuMemFree");
  for (char* host : {buffers.host, buffers.other}) {
    if (host == nullptr) continue;
    if (buffers.pinned) {
      gpu.Ok(gpu.cu().cuMemFreeHost(host), "cuMemFreeHost");
    } else {
      std::free(host);
    }
  }
}

// Pageable memory is copied by the synchronous calls, as programs do; pinned memory on the stream.
bool Copy(Gpu& gpu, Direction direction, const Buffers& buffers, char* host) {
  const Driver& cu = gpu.cu();
  if (direction == Direction::kToDevice) {
    return buffers.pinned
               ? gpu.Ok(cu.cuMemcpyHtoDAsync_v2(buffers.device, host, buffers.bytes, gpu.stream()),
                        "cuMemcpyHtoDAsync")
               : gpu.Ok(cu.cuMemcpyHtoD_v2(buffers.device, host, buffers.bytes), "cuMemcpyHtoD");
  }
  return buffers.pinned
             ? gpu.Ok(cu.cuMemcpyDtoHAsync_v2(host, buffers.device, buffers.bytes, gpu.stream()),
                      "cuMemcpyDtoHAsync")
             : gpu.Ok(cu.cuMemcpyDtoH_v2(host, buffers.device, buffers.bytes), "cuMemcpyDtoH");
}

// Fills the host side with bytes that no earlier line left there, carries them to the device and
// back, and compares. Afterwards device and host hold the same.
bool RoundTrip(Gpu& gpu, const Buffers& buffers) {
  static uint32_t seed = 1;
  seed = seed * 1'664'525 + 1'013'904'223;
  auto* words = reinterpret_cast<uint32_t*>(buffers.host);
  for (size_t i = 0; i < buffers.bytes / sizeof(uint32_t); ++i) {
    words[i] = seed + static_cast<uint32_t>(i);
  }
  if (!Copy(gpu, Direction::kToDevice, buffers, buffers.host) ||
      !Copy(gpu, Direction::kToHost, buffers, buffers.other) || !gpu.Synchronize()) {
    return false;
  }
  return std::memcmp(buffers.host, buffers.other, buffers.bytes) == 0 ||
         gpu.Wrong("copied bytes came back changed");
}

// One line: `per_sample` copies, and behind pinned ones the synchronisation, make one sample.
bool CopyLine(Gpu& gpu, const Plan& plan, const std::string& name, Direction direction, bool pinned,
              const Size& size, int per_sample) {
  return RunLine(gpu, plan, name, "GB/s", [&](std::vector<double>& samples) {
    Buffers buffers;
    if (Allocate(gpu, size.bytes, pinned, buffers) && RoundTrip(gpu, buffers)) {
      // What the timed copies carry is new to where they carry it.
      std::memset(buffers.host, direction == Direction::kToDevice ? 0x5a : 0, buffers.bytes);
      const int times = plan.Times(std::max(4, size.full_count / per_sample), 1);
      for (int i = 0; i < times && !gpu.failed(); ++i) {
        const uint64_t start_ns = NowNs();
        for (int j = 0; j < per_sample; ++j) Copy(gpu, direction, buffers, buffers.host);
        if (pinned) gpu.Synchronize();
        const auto duration_ns = static_cast<double>(NowNs() - start_ns);
        samples.push_back(static_cast<double>(size.bytes) * per_sample / duration_ns);
      }
      if (direction == Direction::kToDevice) {
        Copy(gpu, Direction::kToHost, buffers, buffers.other);
        gpu.Synchronize();
      }
      if (!gpu.failed() && std::memcmp(buffers.host, buffers.other, buffers.bytes) != 0) {
        gpu.Wrong("the timed copies did not bring the right bytes");
      }
    }
    Free(gpu, buffers);
  });
}

}  // namespace

bool MeasureMemory(Gpu& gpu, const Plan& plan) {
  struct Allocated {
    size_t bytes;
    const char* name;
    int full_count;
    bool tiny;
  };
  constexpr Allocated kAllocated[] = {
      {4 * kKiB, "mem_alloc_free_4KiB", 300, true},
      {2 * kMiB, "mem_alloc_free_2MiB", 200, true},
      {64 * kMiB, "mem_alloc_free_64MiB", 60, false},
      {1024 * kMiB, "mem_alloc_free_1GiB", 20, false},
  };
  bool good = true;
  for (const Allocated& size : kAllocated) {
    if (!plan.full && !size.tiny) continue;
    good &= RunLine(gpu, plan, size.name, "us", [&](std::vector<double>& samples) {
      const int times = plan.Times(size.full_count, 3);
      for (int i = 0; i < times && !gpu.failed(); ++i) {
        CUdeviceptr memory = 0;
        const uint64_t start_ns = NowNs();
        gpu.Ok(gpu.cu().cuMemAlloc_v2(&memory, size.bytes), "cuMemAlloc");
        gpu.Ok(gpu.cu().cuMemFree_v2(memory), "cuMemFree");
        samples.push_back(static_cast<double>(NowNs() - start_ns) / 1e3);
      }
    });
  }
  return good;
}

bool MeasureCopies(Gpu& gpu, const Plan& plan) {
  bool good = true;
  for (const bool pinned : {true, false}) {
    for (const Direction direction : {Direction::kToDevice, Direction::kToHost}) {
      const std::string kind =
          std::string(direction == Direction::kToDevice ? "copy_h2d_" : "copy_d2h_") +
          (pinned ? "pinned_" : "pageable_");
      for (const Size& size : kSizes) {
        if (!plan.full && !size.tiny) continue;
        good &= CopyLine(gpu, plan, kind + size.name, direction, pinned, size, 1);
        if (!pinned || size.queued == 0) continue;
        good &= CopyLine(gpu, plan, kind + size.name + "_queued", direction, pinned, size,
                         plan.Times(size.queued, 2));
      }
    }
  }
  return good;
}

}  // namespace gpuloom::bench
