// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/driver_api.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "proto/cuda/driver.h"
#include "proto/cuda/driver_version.h"

namespace gpuloom {
namespace {

// GPULOOM_STUB_SYMBOLS: a file with the stub's exported names, one per line, written by the build
// from the toolkit.
TEST(DriverApi, ListsExactlyWhatTheStubExports) {
  std::ifstream file(GPULOOM_STUB_SYMBOLS);
  ASSERT_TRUE(file) << GPULOOM_STUB_SYMBOLS;
  std::set<std::string> exported;
  for (std::string name; std::getline(file, name);) exported.insert(name);
  std::set<std::string> listed;
  for (const Symbol& symbol : kSymbols) listed.insert(symbol.name);
  EXPECT_EQ(listed, exported);
  EXPECT_EQ(kSymbolCount, 637u);
}

TEST(DriverApi, FindsEveryNameAndNothingElse) {
  for (size_t i = 0; i < kSymbolCount; ++i) {
    SymbolId id{};
    ASSERT_TRUE(FindSymbol(kSymbols[i].name, &id)) << kSymbols[i].name;
    EXPECT_EQ(static_cast<size_t>(id), i);
    EXPECT_FALSE(FindSymbol(std::string(kSymbols[i].name) + "x", &id));
  }
  SymbolId id{};
  EXPECT_FALSE(FindSymbol("", &id));
  EXPECT_FALSE(FindSymbol("cuGLInit", &id));
  EXPECT_FALSE(FindSymbol("zzz", &id));
}

TEST(DriverApi, RoomsAreAsListed) {
  EXPECT_EQ(SymbolOf(SymbolId::cuLaunchKernel).room, Room::kRemote);
  EXPECT_EQ(SymbolOf(SymbolId::cuCtxGetDevice_v2).room, Room::kLocal);
  EXPECT_EQ(SymbolOf(SymbolId::cuGraphicsUnregisterResource).room, Room::kUnsupported);
}

TEST(Driver, LoadSaysWhichPathFailed) {
  Driver driver;
  std::string error;
  EXPECT_FALSE(Load("/nonexistent/libcuda.so.1", &driver, &error));
  EXPECT_NE(error.find("/nonexistent/libcuda.so.1"), std::string::npos) << error;
  EXPECT_FALSE(Load("libm.so.6", &driver, &error));
  EXPECT_NE(error.find("no cuInit"), std::string::npos) << error;
  EXPECT_EQ(driver.cuInit, nullptr);
}

TEST(Driver, LoadsAStandIn) {
  Driver driver;
  std::string error;
  ASSERT_TRUE(Load(GPULOOM_EXPORTS_FIXTURE, &driver, &error)) << error;
  int version = 0;
  EXPECT_EQ(driver.cuDriverGetVersion(&version), CUDA_SUCCESS);  // the fixture's own definition
  EXPECT_EQ(version, 94711);
  EXPECT_EQ(driver.cuGraphCreate(nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);  // the weak body
  void* address = nullptr;
  EXPECT_EQ(driver.cuGetProcAddress("cuGraphCreate", &address, 13000, 0), CUDA_SUCCESS);
  EXPECT_EQ(address, reinterpret_cast<void*>(driver.cuGraphCreate));
  const struct {
    const char* name;
    bool is_found;
  } functions[] = {
#define CUDA_FN(name, room) {#name, driver.name != nullptr},
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
  };
  for (const auto& function : functions) EXPECT_TRUE(function.is_found) << function.name;
}

// Whatever the library exports.
TEST(Driver, HasNothingThatIsNewerThanItsVersion) {
  ASSERT_EQ(setenv("GPULOOM_FIXTURE_DRIVER_VERSION", "12020", 1), 0);
  Driver driver;
  std::string error;
  ASSERT_TRUE(Load(GPULOOM_EXPORTS_FIXTURE, &driver, &error)) << error;
  unsetenv("GPULOOM_FIXTURE_DRIVER_VERSION");
  const struct {
    SymbolId id;
    bool is_found;
  } functions[] = {
#define CUDA_FN(name, room) {SymbolId::name, driver.name != nullptr},
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
  };
  size_t found = 0;
  for (const auto& function : functions) {
    EXPECT_EQ(function.is_found, FirstVersion(function.id) <= 12020) << SymbolOf(function.id).name;
    found += function.is_found;
  }
  EXPECT_EQ(found, 555u);
  EXPECT_NE(driver.cuLibraryLoadData, nullptr);
  EXPECT_EQ(driver.cuKernelGetParamInfo, nullptr);
}

TEST(DriverVersion, EveryFunctionHasOne) {
  for (size_t i = 0; i < kSymbolCount; ++i) {
    EXPECT_GE(FirstVersion(static_cast<SymbolId>(i)), 2000) << kSymbols[i].name;
    EXPECT_LE(FirstVersion(static_cast<SymbolId>(i)), CUDA_VERSION) << kSymbols[i].name;
  }
  EXPECT_EQ(FirstVersion(SymbolId::cuCtxGetDevice), 2000);
  EXPECT_EQ(FirstVersion(SymbolId::cuCtxGetDevice_v2), 13000);
  EXPECT_EQ(FirstVersion(SymbolId::cuGreenCtxStreamCreate), 12050);
}

}  // namespace
}  // namespace gpuloom
