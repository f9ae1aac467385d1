// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tests/bench/kernels.h"
#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

bool ReadImage(Gpu& gpu, const std::string& path, std::string& image) {
  if (path == "-") {
    image = Kernels();
    return true;
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return gpu.Wrong(path + ": " + std::strerror(errno));
  char part[65536];
  size_t count = 0;
  while ((count = std::fread(part, 1, sizeof(part), file.get())) > 0) image.append(part, count);
  return true;
}

}  // namespace

bool MeasureLibraryLoad(Gpu& gpu, const std::string& path) {
  return RunLine(gpu, Plan(), "library_load", "ms", [&](std::vector<double>& samples) {
    const Driver& cu = gpu.cu();
    std::string image;
    if (!ReadImage(gpu, path, image)) return;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    const uint64_t start_ns = NowNs();
    if (!gpu.Ok(
            cu.cuLibraryLoadData(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            "cuLibraryLoadData") ||
        !gpu.Ok(cu.cuLibraryEnumerateKernels(&kernel, 1, library), "cuLibraryEnumerateKernels") ||
        !gpu.Ok(cu.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction") ||
        !gpu.Ok(cu.cuFuncLoad(function), "cuFuncLoad")) {
      return;
    }
    samples.push_back(static_cast<double>(NowNs() - start_ns) / 1e6);
  });
}

}  // namespace gpuloom::bench
