// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

// Everything is ordered by the one stream: it does not wait for the default stream, on which
// memsets and copies without a stream would run.

// A stream's launches all happen, once each.
bool CheckLaunches(Gpu& gpu) {
  constexpr uint32_t kLaunches = 200;
  CUdeviceptr counter = 0;
  uint32_t counted = 0;
  const Driver& cu = gpu.cu();
  if (!gpu.Ok(cu.cuMemAlloc_v2(&counter, sizeof(counted)), "cuMemAlloc") ||
      !gpu.Ok(cu.cuMemsetD32Async(counter, 5, 1, gpu.stream()), "cuMemsetD32Async")) {
    return false;
  }
  for (uint32_t i = 0; i < kLaunches; ++i) {
    if (!gpu.Ok(gpu.LaunchCount(counter, 3), "cuLaunchKernel")) return false;
  }
  if (!gpu.Synchronize() ||
      !gpu.Ok(cu.cuMemcpyDtoH_v2(&counted, counter, sizeof(counted)), "cuMemcpyDtoH") ||
      !gpu.Ok(cu.cuMemFree_v2(counter), "cuMemFree")) {
    return false;
  }
  return counted == 5 + 3 * kLaunches ||
         gpu.Wrong("200 launches that add 3 to 5 gave " + std::to_string(counted));
}

// A kernel of many blocks writes every word, none behind the last, and a copy brings them all.
bool CheckFill(Gpu& gpu) {
  constexpr uint32_t kWords = 10'007;
  constexpr uint32_t kSeed = 40;
  std::vector<uint32_t> words(kWords + 1);
  CUdeviceptr device = 0;
  const Driver& cu = gpu.cu();
  if (!gpu.Ok(cu.cuMemAlloc_v2(&device, words.size() * 4), "cuMemAlloc") ||
      !gpu.Ok(cu.cuMemsetD32Async(device, 7, words.size(), gpu.stream()), "cuMemsetD32Async") ||
      !gpu.Ok(gpu.LaunchFill(device, kSeed, kWords), "cuLaunchKernel") || !gpu.Synchronize() ||
      !gpu.Ok(cu.cuMemcpyDtoH_v2(words.data(), device, words.size() * 4), "cuMemcpyDtoH") ||
      !gpu.Ok(cu.cuMemFree_v2(device), "cuMemFree")) {
    return false;
  }
  for (uint32_t i = 0; i < kWords; ++i) {
    if (words[i] != kSeed + 3 * i) return gpu.Wrong("wrong word " + std::to_string(i));
  }
  return words[kWords] == 7 || gpu.Wrong("the kernel's neighbour changed");
}

// Odd sizes and offsets, to the device, across it and back.
bool CheckCopies(Gpu& gpu) {
  constexpr size_t kBytes = 300'001;
  std::vector<unsigned char> sent(kBytes), received(kBytes, 0xee);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<unsigned char>(i * 31 + (i >> 8));
  CUdeviceptr from = 0, to = 0;
  const Driver& cu = gpu.cu();
  if (!gpu.Ok(cu.cuMemAlloc_v2(&from, kBytes + 64), "cuMemAlloc") ||
      !gpu.Ok(cu.cuMemAlloc_v2(&to, kBytes + 64), "cuMemAlloc")) {
    return false;
  }
  constexpr size_t kSizes[] = {1, 3, 4097, 65'537, kBytes};
  for (const size_t size : kSizes) {
    const size_t at = size % 13 + 1;
    if (!gpu.Ok(cu.cuMemcpyHtoDAsync_v2(from + at, sent.data(), size, gpu.stream()),
                "cuMemcpyHtoDAsync") ||
        !gpu.Ok(cu.cuMemcpyDtoDAsync_v2(to + 5, from + at, size, gpu.stream()),
                "cuMemcpyDtoDAsync") ||
        !gpu.Ok(cu.cuMemcpyDtoHAsync_v2(received.data(), to + 5, size, gpu.stream()),
                "cuMemcpyDtoHAsync") ||
        !gpu.Synchronize()) {
      return false;
    }
    if (std::memcmp(sent.data(), received.data(), size) != 0) {
      return gpu.Wrong("a copy of " + std::to_string(size) + " bytes came back changed");
    }
    if (size < kBytes && received[size] != 0xee) {
      return gpu.Wrong("a copy of " + std::to_string(size) + " bytes wrote behind its end");
    }
    std::fill(received.begin(), received.end(), 0xee);
  }
  return gpu.Ok(cu.cuMemFree_v2(from), "cuMemFree") && gpu.Ok(cu.cuMemFree_v2(to), "cuMemFree");
}

}  // namespace

bool CheckResults(Gpu& gpu) {
  if (CheckLaunches(gpu) && CheckFill(gpu) && CheckCopies(gpu)) {
    ReportFact("check", "\"ok\":true");
    return true;
  }
  ReportError("check", gpu.TakeError());
  return false;
}

}  // namespace gpuloom::bench
