// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/proc_address.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "proto/libcuda/exports.h"

namespace gpuloom {
namespace {

std::string Resolve(const char* name, int version, bool per_thread = false) {
  const ProcAddress answer = FindProcAddress(name, version, per_thread);
  switch (answer.status) {
    case ProcAddressStatus::kFound:
      return SymbolOf(answer.symbol).name;
    case ProcAddressStatus::kNotFound:
      return "not found";
    case ProcAddressStatus::kVersionNotSufficient:
      return "version not sufficient";
  }
  return "?";
}

TEST(ProcAddress, VersionPicksTheAbi) {
  const struct {
    const char* name;
    int version;
    const char* symbol;
  } cases[] = {
      {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 12090, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
      {"cuCtxSynchronize", 12000, "cuCtxSynchronize"},
      {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
      {"cuCtxCreate", 2000, "cuCtxCreate"},
      {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
      {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
      {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
      {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
      {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
      {"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
      {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
      {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
      {"cuGraphInstantiate", 10000, "cuGraphInstantiate"},
      {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
      {"cuGraphInstantiateWithFlags", 11040, "cuGraphInstantiateWithFlags"},
      {"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"},
      {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
      {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
      {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
      {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
      {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
      {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
      {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
      {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
      {"cuStreamGetCtx", 9020, "cuStreamGetCtx"},
      {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
      {"cuStreamWaitValue32", 8000, "cuStreamWaitValue32"},
      {"cuStreamWaitValue32", 11070, "cuStreamWaitValue32_v2"},
      {"cuGetProcAddress", 11030, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
      {"cuMemAlloc", 2000, "cuMemAlloc"},
      {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
      {"cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease"},
      {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
      {"cuLaunchKernelEx", 11050, "version not sufficient"},
      {"cuLaunchKernelEx", 11060, "cuLaunchKernelEx"},
      {"cuProfilerStart", 4000, "cuProfilerStart"},
      {"cuInit", 0, "version not sufficient"},
      {"", 0, "not found"},
      {"", 13000, "not found"},
      {"cuGLInit", 2000, "not found"},
      {"cuMemAlloc_v2", 13000, "not found"},
      {"cuMemcpyAsync_ptsz", 13000, "not found"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(Resolve(c.name, c.version), c.symbol) << c.name << " " << c.version;
}

TEST(ProcAddress, PerThreadWhereThereIsSuchAForm) {
  EXPECT_EQ(Resolve("cuLaunchKernel", 7000, true), "cuLaunchKernel_ptsz");
  EXPECT_EQ(Resolve("cuMemcpyHtoD", 7000, true), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(Resolve("cuStreamGetCaptureInfo", 12000, true), "cuStreamGetCaptureInfo_v2_ptsz");
  EXPECT_EQ(Resolve("cuMemcpyHtoD", 3020, true), "cuMemcpyHtoD_v2");
  EXPECT_EQ(Resolve("cuMemAlloc", 13000, true), "cuMemAlloc_v2");
  EXPECT_EQ(Resolve("cuCtxSynchronize", 13000, true), "cuCtxSynchronize_v2");
}

TEST(ProcAddress, AnOlderDriverKnowsNothingNewer) {
  const auto resolve = [](const char* name, int version, int driver_version) -> std::string {
    const ProcAddress answer = FindProcAddress(name, version, false, driver_version);
    if (answer.status == ProcAddressStatus::kFound) return SymbolOf(answer.symbol).name;
    return answer.status == ProcAddressStatus::kNotFound ? "not found" : "version not sufficient";
  };
  EXPECT_EQ(resolve("cuGreenCtxCreate", 12040, 12020), "not found");
  EXPECT_EQ(resolve("cuGreenCtxCreate", 12020, 12040), "version not sufficient");
  EXPECT_EQ(resolve("cuGreenCtxCreate", 13000, 12040), "cuGreenCtxCreate");
  EXPECT_EQ(resolve("cuCtxGetDevice", 13000, 12080), "cuCtxGetDevice");
  EXPECT_EQ(resolve("cuCtxCreate", 12050, 12040), "cuCtxCreate_v3");
  EXPECT_TRUE(DependsOnDriver("cuGreenCtxCreate"));
  EXPECT_TRUE(DependsOnDriver("cuCtxGetDevice"));
  EXPECT_FALSE(DependsOnDriver("cuMemAlloc"));
  EXPECT_FALSE(DependsOnDriver("cuMemPrefetchAsync"));
  EXPECT_FALSE(DependsOnDriver(""));
  EXPECT_FALSE(DependsOnDriver(nullptr));
}

// proc_address.def as data: a statement for each of its lines would take long to compile.
struct Row {
  const char* name;
  int version;
  bool per_thread;
  const char* symbol;
};
constexpr Row kRows[] = {
#define PROC_ADDRESS(name, version, per_thread, symbol, type) {#name, version, per_thread, #symbol},
#include "proto/cuda/proc_address.def"
#undef PROC_ADDRESS
};

// Every request that cudart 13.0 makes when it starts, against what the toolkit's types say it
// means: a name of a graphics interface that libcuda's stub does not export is not found, all
// others are.
TEST(ProcAddress, ResolvesEveryRequestOfCudart13) {
  std::map<std::string, std::map<int, std::string>>
      rows[2];  // name → version → symbol; [1] per thread
  for (const Row& row : kRows) rows[row.per_thread][row.name][row.version] = row.symbol;
  std::ifstream file(GPULOOM_CUDART_REQUESTS);
  ASSERT_TRUE(file) << GPULOOM_CUDART_REQUESTS;
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  int requests = 0;
  int absent = 0;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    std::string version_text;
    std::string flags;
    std::getline(fields, name, ',');
    std::getline(fields, version_text, ',');
    std::getline(fields, flags, ',');
    const int version = std::atoi(version_text.c_str());
    const bool per_thread = std::atoi(flags.c_str()) == 2;
    ++requests;
    SymbolId id{};
    if (!FindSymbol(name, &id)) {
      const bool graphics = name.find("GL") != std::string::npos ||
                            name.find("VDPAU") != std::string::npos ||
                            name.find("Egl") != std::string::npos;
      EXPECT_TRUE(graphics) << line;
      EXPECT_EQ(Resolve(name.c_str(), version, per_thread), "not found") << line;
      ++absent;
      continue;
    }
    std::string expected;
    for (const bool which : {false, true}) {
      if (which && !per_thread) continue;
      const auto& versions = rows[which][name];
      const auto newer = versions.upper_bound(version);
      if (newer != versions.begin()) expected = std::prev(newer)->second;
    }
    ASSERT_NE(expected, "") << line;
    EXPECT_EQ(Resolve(name.c_str(), version, per_thread), expected) << line;
    // A per-thread request that differs from the plain one really names a per-thread function.
    if (expected != Resolve(name.c_str(), version, false)) {
      const std::string suffix = expected.substr(expected.size() - 5);
      EXPECT_TRUE(suffix == "_ptds" || suffix == "_ptsz") << line;
    }
  }
  EXPECT_EQ(requests, 439);
  EXPECT_EQ(absent, 29);
}

TEST(ProcAddress, NamesEveryExportedFunctionOnce) {
  std::map<std::string, int> uses;
  for (const Row& row : kRows) ++uses[row.symbol];
  for (const Symbol& symbol : kSymbols) EXPECT_EQ(uses[symbol.name], 1) << symbol.name;
}

TEST(AnswerGetProcAddress, SaysWhatCudaSays) {
  void* function = &function;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(AnswerGetProcAddress("", &function, 0, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernelEx", &function, 11000, 0, nullptr),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernelEx", &function, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernel", &function, 7000, 2, &status), CUDA_SUCCESS);
  EXPECT_EQ(function, ExportedAddress(SymbolId::cuLaunchKernel_ptsz));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernel", &function, 7000, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(function, ExportedAddress(SymbolId::cuLaunchKernel));
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernel", &function, 7000, 3, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(function, ExportedAddress(SymbolId::cuLaunchKernel_ptsz));
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernel", &function, 7000, 8, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AnswerGetProcAddress("cuLaunchKernel", nullptr, 7000, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AnswerGetProcAddress(nullptr, &function, 7000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom
