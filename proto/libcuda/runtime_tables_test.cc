// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/runtime_tables.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace gpuloom {
namespace {

CUcontext Context(uint64_t value) { return reinterpret_cast<CUcontext>(value); }

// The owner's side, as a test can steer it.
CUcontext current = nullptr;
const void* loaded_image = nullptr;
bool allowed = true;
std::vector<std::string> lines;

CUstream Stream(uint64_t value) { return reinterpret_cast<CUstream>(value); }

const RuntimeHooks kHooks = {
    .current_context =
        [](CUcontext* context) {
          *context = current;
          return CUDA_SUCCESS;
        },
    .primary_context =
        [](CUdevice device, CUcontext* context) {
          if (device > 1) return CUDA_ERROR_INVALID_DEVICE;
          *context = Context(0x1000 + static_cast<uint64_t>(device));
          return CUDA_SUCCESS;
        },
    .context_id =
        [](CUcontext context, uint64_t* id) {
          *id = reinterpret_cast<uint64_t>(context) + 1;
          return CUDA_SUCCESS;
        },
    .stream_id =
        [](CUstream stream, unsigned long long* id) {
          if (stream == Stream(400)) return CUDA_ERROR_INVALID_HANDLE;
          *id = reinterpret_cast<uint64_t>(stream);
          return CUDA_SUCCESS;
        },
    .stream_id_ptsz =
        [](CUstream stream, unsigned long long* id) {
          *id = reinterpret_cast<uint64_t>(stream) + 0x100;
          return CUDA_SUCCESS;
        },
    .load_module =
        [](CUmodule* module, const void* image) {
          loaded_image = image;
          *module = reinterpret_cast<CUmodule>(uint64_t{0x77});
          return CUDA_SUCCESS;
        },
    .function_count = [](unsigned* count, CUmodule) { return *count = 2, CUDA_SUCCESS; },
    .list_functions =
        [](CUfunction* functions, unsigned capacity, CUmodule module) {
          for (unsigned i = 0; i < capacity; ++i) {
            functions[i] = reinterpret_cast<CUfunction>(reinterpret_cast<uint64_t>(module) + i + 1);
          }
          return CUDA_SUCCESS;
        },
    .driver_version = [] { return 13000; },
    .device_count = [] { return 2; },
    .device_identity =
        [](int index, RuntimeDevice* device) {
          *device = {{static_cast<uint8_t>(index + 1)}, 0, 0x10 + index, 0};
        },
    .handshake_allowed = [] { return allowed; },
    .log = [](const char* line) { lines.emplace_back(line); },
};

CUuuid Uuid(const std::string& text) {
  CUuuid uuid{};
  int byte = 0;
  for (size_t i = 0; i + 1 < text.size() && byte < 16; i += 2) {
    if (text[i] == '-') ++i;
    uuid.bytes[byte++] = static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return uuid;
}

const void* const* GetTable(const std::string& uuid) {
  const CUuuid id = Uuid(uuid);
  const void* table = nullptr;
  EXPECT_EQ(AnswerGetExportTable(kHooks, &table, &id), CUDA_SUCCESS) << uuid;
  return static_cast<const void* const*>(table);
}

template <typename Function>
Function* Slot(const void* const* table, size_t index) {
  return reinterpret_cast<Function*>(const_cast<void*>(table[index]));
}

size_t Words(const void* const* table) {
  return reinterpret_cast<size_t>(table[0]) / sizeof(void*);
}

constexpr char kInterface[] = "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9";
constexpr char kIntegrity[] = "d4082055-bde6-704b-8d34-ba123c66e1f2";
constexpr char kStorage[] = "c693336e-1121-df11-a8c3-68f355d89593";

TEST(RuntimeTables, SizesAreThoseOfTheRuntime) {
  const struct {
    const char* uuid;
    size_t words;
  } cases[] = {{kInterface, 13},
               {"a094798c-2e74-2e74-93f2-0800200c0a66", 7},
               {"42d85a81-23f6-cb47-8298-f6e78a3aecdc", 4},
               {"263e8860-7cd2-6143-92f6-bbd5006dfa7e", 4},
               {kIntegrity, 3},
               {"21318c60-9714-3248-8ca6-41ff7324c8f2", 93},
               {"1734dc26-800d-4745-8726-c0f1e7dd8bca", 17},
               {"6e163fbe-b958-444d-835c-e182aff1991e", 17},
               {"da9151d3-3ae6-cc41-a5c0-4f26d533e328", 7}};
  for (const auto& c : cases) {
    const void* const* table = GetTable(c.uuid);
    ASSERT_EQ(Words(table), c.words) << c.uuid;
    for (size_t i = 1; i < c.words; ++i) EXPECT_NE(table[i], nullptr) << c.uuid << " " << i;
    EXPECT_EQ(GetTable(c.uuid), table);
  }
}

TEST(RuntimeTables, Interface) {
  const void* const* table = GetTable(kInterface);
  CUcontext context = nullptr;
  EXPECT_EQ(Slot<int(CUcontext*, CUdevice)>(table, 2)(&context, 1), CUDA_SUCCESS);
  EXPECT_EQ(context, Context(0x1001));
  EXPECT_EQ(Slot<int(CUcontext*, CUdevice)>(table, 2)(&context, 9), CUDA_ERROR_INVALID_DEVICE);
  int image = 0;
  CUmodule module = nullptr;
  EXPECT_EQ(Slot<int(CUmodule*, const void*)>(table, 1)(&module, &image), CUDA_SUCCESS);
  EXPECT_EQ(loaded_image, &image);
  loaded_image = nullptr;
  using Load6 = int(CUmodule*, const void*, void*, void*, unsigned);
  EXPECT_EQ(Slot<Load6>(table, 6)(&module, &image, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(loaded_image, &image);
  loaded_image = nullptr;
  module = nullptr;
  using Load8 = int(const void*, CUmodule*, void*, void*, unsigned);
  EXPECT_EQ(Slot<Load8>(table, 8)(&image, &module, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(loaded_image, &image);
  EXPECT_EQ(module, reinterpret_cast<CUmodule>(uint64_t{0x77}));
  EXPECT_EQ(Slot<int(size_t)>(table, 7)(5), CUDA_SUCCESS);
}

TEST(RuntimeTables, FunctionsOfAModuleAreVisited) {
  struct Seen {
    std::vector<CUfunction> functions;
    CUmodule module = nullptr;
  };
  const auto visit = [](void* seen_here, CUfunction function, CUmodule module) {
    static_cast<Seen*>(seen_here)->functions.push_back(function);
    static_cast<Seen*>(seen_here)->module = module;
  };
  using Visit = void (*)(void*, CUfunction, CUmodule);
  const void* const* table = GetTable("6e163fbe-b958-444d-835c-e182aff1991e");
  Seen seen;
  const auto module = reinterpret_cast<CUmodule>(uint64_t{0x77});
  EXPECT_EQ(
      Slot<uint64_t(CUcontext, CUmodule, Visit, void*)>(table, 7)(nullptr, module, visit, &seen),
      2u);
  ASSERT_EQ(seen.functions.size(), 2u);
  EXPECT_EQ(seen.functions[1], reinterpret_cast<CUfunction>(uint64_t{0x79}));
  EXPECT_EQ(seen.module, module);
}

TEST(RuntimeTables, ToolsAndContextQuestions) {
  const void* const* hooks = GetTable("a094798c-2e74-2e74-93f2-0800200c0a66");
  void* buffer = nullptr;
  size_t count = 0;
  Slot<void(void**, size_t*)>(hooks, 2)(&buffer, &count);
  EXPECT_EQ(count, 1024u);
  ASSERT_NE(buffer, nullptr);
  std::memset(buffer, 0, count * sizeof(uint64_t));  // really that long, and writable
  Slot<void(void**, size_t*)>(hooks, 6)(&buffer, &count);
  EXPECT_EQ(count, 14u);
  std::memset(buffer, 0, count * sizeof(uint64_t));

  current = Context(0x1000);
  CUcontext context = nullptr;
  EXPECT_EQ(Slot<int(CUcontext*)>(GetTable("42d85a81-23f6-cb47-8298-f6e78a3aecdc"), 2)(&context),
            CUDA_SUCCESS);
  EXPECT_EQ(context, Context(0x1000));
  uint64_t id = 0;
  const void* const* tools_context = GetTable("21318c60-9714-3248-8ca6-41ff7324c8f2");
  EXPECT_EQ(Slot<int(CUcontext, uint64_t*)>(tools_context, 4)(Context(0x1000), &id), CUDA_SUCCESS);
  EXPECT_EQ(id, 0x1001u);

  // The stream behind a handle, and what tells it from the others.
  using StreamOf = int(CUcontext, CUstream, uint64_t*, int);
  using IdentityOf = int(CUcontext, uint64_t, uint64_t*);
  uint64_t stream = 0;
  for (const uint64_t handle : {0, 2, 0x5000}) {
    for (const int per_thread : {0, 1}) {
      EXPECT_EQ(
          Slot<StreamOf>(tools_context, 51)(Context(0x1000), Stream(handle), &stream, per_thread),
          CUDA_SUCCESS);
      EXPECT_NE(stream, 0u);
      EXPECT_EQ(Slot<IdentityOf>(tools_context, 39)(Context(0x1000), stream, &id), CUDA_SUCCESS);
      EXPECT_EQ(id, handle + (per_thread != 0 ? 0x100 : 0));
    }
  }
  EXPECT_EQ(Slot<StreamOf>(tools_context, 51)(Context(0x1000), Stream(400), &stream, 0),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Slot<StreamOf>(tools_context, 51)(Context(0x1000), Stream(0), nullptr, 0),
            CUDA_ERROR_INVALID_VALUE);

  const void* const* checks = GetTable("263e8860-7cd2-6143-92f6-bbd5006dfa7e");
  uint32_t result = 7;
  const void* more = nullptr;
  EXPECT_EQ(
      Slot<int(CUcontext, uint32_t*, const void**)>(checks, 2)(Context(0x1000), &result, &more),
      CUDA_SUCCESS);
  EXPECT_EQ(result, 0u);
  EXPECT_EQ(Slot<int()>(checks, 3)(), CUDA_SUCCESS);
}

struct Destroyed {
  CUcontext context;
  void* key;
  void* value;
};
std::vector<Destroyed> destroyed;

// It may have been forked while another thread was in the middle of a write.
TEST(RuntimeTables, AForkedChildReadsContextLocalStorage) {
  const void* const* table = GetTable(kStorage);
  const auto put = Slot<int(CUcontext, void*, void*, void (*)(CUcontext, void*, void*))>(table, 0);
  const auto remove = Slot<int(CUcontext, void*)>(table, 1);
  const auto get = Slot<int(void**, CUcontext, void*)>(table, 2);
  int key = 0;
  ASSERT_EQ(put(Context(0x3000), &key, &key, nullptr), CUDA_SUCCESS);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) (void)put(Context(0x3000), &key, &key, nullptr);
  });
  int ended_well = 0;
  constexpr int kForks = 300;
  for (int i = 0; i < kForks && ended_well == i; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      void* found = nullptr;
      _exit(get(&found, Context(0x3000), &key) == CUDA_SUCCESS && found == &key ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    ended_well += status == 0 ? 1 : 0;
  }
  stop = true;
  writer.join();
  EXPECT_EQ(ended_well, kForks);
  EXPECT_EQ(remove(Context(0x3000), &key), CUDA_SUCCESS);
}

TEST(RuntimeTables, ContextLocalStorage) {
  const void* const* table = GetTable(kStorage);
  EXPECT_EQ(table[3], nullptr);
  const auto destructor = +[](CUcontext context, void* key, void* value) {
    destroyed.push_back({context, key, value});
  };
  const auto put = Slot<int(CUcontext, void*, void*, void (*)(CUcontext, void*, void*))>(table, 0);
  const auto remove = Slot<int(CUcontext, void*)>(table, 1);
  const auto get = Slot<int(void**, CUcontext, void*)>(table, 2);
  int key = 0;
  int value = 0;
  void* found = nullptr;
  current = nullptr;
  EXPECT_EQ(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(put(nullptr, &key, &value, destructor), CUDA_ERROR_INVALID_CONTEXT);
  current = Context(0x1000);
  EXPECT_EQ(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(put(nullptr, &key, &value, destructor), CUDA_SUCCESS);
  EXPECT_EQ(get(&found, nullptr, &key), CUDA_SUCCESS);
  EXPECT_EQ(found, &value);
  found = nullptr;
  EXPECT_EQ(get(&found, Context(~uint64_t{0}), &key), CUDA_SUCCESS);
  EXPECT_EQ(get(&found, Context(0x1000), &key), CUDA_SUCCESS);
  EXPECT_EQ(get(&found, Context(0x2000), &key), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(remove(Context(0x1000), &key), CUDA_SUCCESS);
  EXPECT_EQ(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);

  EXPECT_EQ(put(nullptr, &key, &value, destructor), CUDA_SUCCESS);
  ResetRuntimeContext(Context(0x2000));
  EXPECT_TRUE(destroyed.empty());
  ResetRuntimeContext(Context(0x1000));
  ASSERT_EQ(destroyed.size(), 1u);
  EXPECT_EQ(destroyed[0].context, Context(0x1000));
  EXPECT_EQ(destroyed[0].key, &key);
  EXPECT_EQ(destroyed[0].value, &value);
  EXPECT_EQ(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
}

TEST(RuntimeTables, IntegrityAnswersForTheTablesHandedOut) {
  const void* const* table = GetTable(kIntegrity);
  const auto check = Slot<int(uint32_t, uint64_t, uint64_t*)>(table, 1);
  uint64_t words[2] = {};
  EXPECT_EQ(check(13000, 1700000000, words), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 0x3341181c03cb675cu);
  EXPECT_EQ(check(13002, 1700000000, words), CUDA_SUCCESS);
  RuntimeDevice devices[2];
  for (int i = 0; i < 2; ++i) kHooks.device_identity(i, &devices[i]);
  const HandshakeSubject subject{13000,
                                 13002,
                                 static_cast<uint32_t>(getpid()),
                                 static_cast<uint32_t>(pthread_self()),
                                 reinterpret_cast<uint64_t>(GetTable(kInterface)),
                                 reinterpret_cast<uint64_t>(table),
                                 reinterpret_cast<uint64_t>(table[1]),
                                 1700000000};
  const HandshakeAnswer expected = AnswerHandshake(subject, devices, 2);
  EXPECT_EQ(words[0], expected.words[0]);
  EXPECT_EQ(words[1], expected.words[1]);

  allowed = false;
  EXPECT_EQ(check(13000, 1700000000, words), CUDA_ERROR_NOT_SUPPORTED);
  allowed = true;
}

TEST(RuntimeTables, RefusesAndStubsTheRest) {
  const void* table = &table;
  lines.clear();
  for (const char* refused :
       {"f8cff951-2146-8b4e-b9e2-fb469e7c0dd9", "69a28e9f-0000-0000-0000-000000000000"}) {
    const CUuuid id = Uuid(refused);
    EXPECT_EQ(AnswerGetExportTable(kHooks, &table, &id), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table, nullptr);
  }
  EXPECT_TRUE(lines.empty()) << lines.front();
  const CUuuid id = Uuid(kInterface);
  EXPECT_EQ(AnswerGetExportTable(kHooks, nullptr, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AnswerGetExportTable(kHooks, &table, nullptr), CUDA_ERROR_INVALID_VALUE);

  lines.clear();
  const uint64_t before = UnsupportedSlotCalls();
  const void* const* layout = GetTable("1734dc26-800d-4745-8726-c0f1e7dd8bca");
  EXPECT_EQ(Slot<int(void*, void*)>(layout, 4)(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Slot<int(void*, void*)>(layout, 4)(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(UnsupportedSlotCalls(), before + 2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "cuda: export table 1734dc26-800d-4745-8726-c0f1e7dd8bca function 4 is not supported");
}

TEST(RuntimeTables, UnknownTablesAreLongAndNamed) {
  lines.clear();
  const char* uuid = "bfdb432d-0000-4444-835c-e182aff1991e";
  const void* const* table = GetTable(uuid);
  ASSERT_GE(Words(table), 128u);
  EXPECT_EQ(GetTable(uuid), table);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(uuid), std::string::npos);
  for (size_t i = 1; i < Words(table); ++i) {
    EXPECT_EQ(Slot<int(int)>(table, i)(1), CUDA_ERROR_NOT_SUPPORTED);
  }
  EXPECT_EQ(lines.size(), Words(table));
  EXPECT_EQ(lines[7],
            "cuda: export table bfdb432d-0000-4444-835c-e182aff1991e function 7 is not supported");
  // More unknown tables than there is room for still get one.
  for (int i = 0; i < 20; ++i) {
    const void* const* other =
        GetTable("abcdef" + std::to_string(10 + i) + "-0000-0000-0000-000000000000");
    ASSERT_NE(other, nullptr);
    EXPECT_NE(other, table);
    EXPECT_EQ(Slot<int(int)>(other, 128)(1), CUDA_ERROR_NOT_SUPPORTED);
  }
}

}  // namespace
}  // namespace gpuloom
