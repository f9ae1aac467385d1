// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/compile_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

class CompileCache : public ::testing::Test {
 protected:
  CompileCache() {
    char name[] = "/tmp/gpuloom-compile-cache-XXXXXX";
    root_ = mkdtemp(name);
    setenv("CUDA_CACHE_PATH", (root_ / "a" / "cache").c_str(), 1);
  }
  ~CompileCache() override {
    for (const char* name : {"CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE"}) {
      unsetenv(name);
    }
    fs::remove_all(root_);
  }

  struct Source {
    uint32_t kind = 1;
    std::string data = "data";
    const char* options = "-arch=sm_90";
    const char* host = "HOST64";
    const char* compiler = "Aug 20 2025";
    uint32_t architecture = 90;
  };
  static CUresult MakeKey(const Source& source, CompileCacheKey** key) {
    return MakeCompileCacheKey({source.kind, source.data.data(), source.data.size(), source.options,
                                source.host, source.compiler, source.architecture},
                               key);
  }
  static CUresult Keep(const Source& source, const std::string& code) {
    CompileCacheKey* key = nullptr;
    EXPECT_EQ(MakeKey(source, &key), CUDA_SUCCESS);
    const CUresult result = KeepCompiled(*key, code.data(), static_cast<uint32_t>(code.size()));
    DestroyCompileCacheKey(key);
    return result;
  }
  // "none" if there is none.
  static std::string Find(const Source& source) {
    CompileCacheKey* key = nullptr;
    EXPECT_EQ(MakeKey(source, &key), CUDA_SUCCESS);
    void* data = nullptr;
    uint32_t data_bytes = 0;
    const CUresult result = FindCompiled(*key, &data, &data_bytes);
    DestroyCompileCacheKey(key);
    if (result != CUDA_SUCCESS) {
      EXPECT_EQ(result, CUDA_ERROR_NOT_FOUND);
      return "none";
    }
    const std::string code(static_cast<char*>(data), data_bytes);
    free(data);
    return code;
  }
  fs::path Folder() const { return root_ / "a" / "cache" / "gpuloom"; }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(Folder())) files.push_back(entry.path());
    return files;
  }

  fs::path root_;
};

TEST_F(CompileCache, KeepsWhatWasMadeUntilItIsMadeAgain) {
  EXPECT_EQ(Find({}), "none");
  EXPECT_EQ(Keep({}, "code"), CUDA_SUCCESS);
  EXPECT_EQ(Find({}), "code");
  EXPECT_EQ(Keep({}, std::string(1 << 20, 'x')), CUDA_SUCCESS);
  EXPECT_EQ(Find({}), std::string(1 << 20, 'x'));
  EXPECT_EQ(Keep({}, ""), CUDA_SUCCESS);
  EXPECT_EQ(Find({}), "");
  EXPECT_EQ(Files().size(), 1u);
  struct stat state;
  ASSERT_EQ(stat(Folder().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u) << "nobody else's";
  ASSERT_EQ(stat(Files()[0].c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST_F(CompileCache, EverythingThatItIsMadeFromCounts) {
  ASSERT_EQ(Keep({}, "code"), CUDA_SUCCESS);
  const Source others[] = {{.kind = 2},
                           {.data = "date"},
                           {.data = ""},
                           {.options = "-arch=sm_90a"},
                           {.options = nullptr},
                           {.host = "HOST32"},
                           {.compiler = "Aug 21 2025"},
                           {.architecture = 100},
                           {.options = "HOST64", .host = "-arch=sm_90"}};
  for (const Source& other : others) EXPECT_EQ(Find(other), "none") << &other - others;
  for (const Source& other : others) EXPECT_EQ(Keep(other, "other"), CUDA_SUCCESS);
  EXPECT_EQ(Find({}), "code");
  EXPECT_EQ(Files().size(), 1 + std::size(others));
}

TEST_F(CompileCache, ADamagedFileIsNotThere) {
  ASSERT_EQ(Keep({}, "some code"), CUDA_SUCCESS);
  const fs::path file = Files()[0];
  const auto whole = fs::file_size(file);
  for (uintmax_t size = 0; size < whole; size += 7) {
    fs::resize_file(file, size);
    EXPECT_EQ(Find({}), "none") << size;
    ASSERT_EQ(Keep({}, "some code"), CUDA_SUCCESS);
    EXPECT_EQ(Find({}), "some code");
  }
  for (uintmax_t at = 0; at < whole; ++at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(stream.get() ^ 0x40);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
    stream.close();
    EXPECT_EQ(Find({}), "none") << at;
    ASSERT_EQ(Keep({}, "some code"), CUDA_SUCCESS);
  }
  fs::resize_file(file, uintmax_t{1} << 40);
  EXPECT_EQ(Find({}), "none");
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(Find({}), "none");
}

TEST_F(CompileCache, WhatWasUsedLongestAgoMakesRoom) {
  setenv("CUDA_CACHE_MAXSIZE", "40000", 1);
  const auto source = [](int i) { return Source{.data = std::to_string(i)}; };
  const std::string code(10'000, 'c');
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Keep(source(i), code), CUDA_SUCCESS);
  for (const fs::path& file : Files()) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  EXPECT_EQ(Find(source(0)), code);
  for (int i = 3; i < 5; ++i) ASSERT_EQ(Keep(source(i), code), CUDA_SUCCESS);
  EXPECT_EQ(Files().size(), 3u);
  EXPECT_EQ(Find(source(0)), code);
  EXPECT_EQ(Find(source(4)), code);
  EXPECT_EQ(Keep(source(5), std::string(50'000, 'c')), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Find(source(4)), code) << "what does not fit at all moves nothing";
}

TEST_F(CompileCache, IsOffWhereItCannotBe) {
  CompileCacheKey* key = nullptr;
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  EXPECT_EQ(MakeKey({}, &key), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_FALSE(fs::exists(root_ / "a"));
  setenv("CUDA_CACHE_DISABLE", "0", 1);
  EXPECT_EQ(MakeKey({}, &key), CUDA_SUCCESS);
  DestroyCompileCacheKey(key);
  std::ofstream(root_ / "file") << "no folder";
  setenv("CUDA_CACHE_PATH", (root_ / "file" / "cache").c_str(), 1);
  EXPECT_EQ(MakeKey({}, &key), CUDA_ERROR_NOT_INITIALIZED);
  setenv("CUDA_CACHE_PATH", std::string(5000, 'x').c_str(), 1);
  EXPECT_EQ(MakeKey({}, &key), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(key, nullptr);
  const CompileInputs nothing = {1, nullptr, 1, nullptr, nullptr, nullptr, 0};
  EXPECT_EQ(MakeCompileCacheKey(nothing, &key), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(MakeCompileCacheKey(nothing, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CompileCache, LiesInTheHomeFolderByDefault) {
  const char* home = getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  unsetenv("CUDA_CACHE_PATH");
  setenv("HOME", root_.c_str(), 1);
  EXPECT_EQ(Keep({}, "code"), CUDA_SUCCESS);
  EXPECT_FALSE(fs::is_empty(root_ / ".nv/ComputeCache/gpuloom"));
  setenv("HOME", before.c_str(), 1);
}

TEST_F(CompileCache, ThreadsReadOnlyWhatIsWhole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        if (t % 2 == 0) {
          EXPECT_EQ(Keep({}, std::string(20'000 + 1000 * t, static_cast<char>('a' + t))),
                    CUDA_SUCCESS);
        } else {
          const std::string code = Find({});
          EXPECT_TRUE(code == "none" || code == std::string(20'000, 'a') ||
                      code == std::string(22'000, 'c'));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Files().size(), 1u) << "nothing unfinished is left";
}

}  // namespace
}  // namespace gpuloom
