// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/runtime_tables.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "proto/libcuda/compile_cache.h"
#include "proto/libcuda/context_storage.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// Every slot has this one type, so that the tables are constants. All arguments are integers or
// pointers, and the x86-64 calling convention passes those in the same registers whatever their
// types are and ignores the missing ones.
using Word = uint64_t;
using Slot = Word (*)(Word, Word, Word, Word, Word);

std::atomic<const RuntimeHooks*> registered_hooks{nullptr};
constinit ContextStorage storage;

// A table cannot be called before it was handed out, and it is handed out with the hooks.
const RuntimeHooks& Hooks() { return *registered_hooks.load(std::memory_order_acquire); }

template <typename T>
T* Pointer(Word word) {
  return reinterpret_cast<T*>(word);
}

// Slots without a function

enum TableId : int {
  kInterface,
  kToolsHooks,
  kToolsTls,
  kContextStorage,
  kContextChecks,
  kIntegrity,
  kToolsContext,
  kGpcLayout,
  kToolsModule,
  kCompileCache,
  kFirstUnknown,
};

// Tables for unknown UUIDs. A process asks for a handful; beyond that they share the last one.
constexpr int kUnknownTables = 8;
constexpr int kTableCount = kFirstUnknown + kUnknownTables;
// The largest table known has 95 words.
constexpr size_t kUnknownTableWords = 129;

struct Uuid {
  uint8_t bytes[16];
};

constexpr Uuid kKnownUuids[kFirstUnknown] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9}},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66}},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc}},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93}},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e}},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2}},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2}},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca}},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e}},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28}},
};

// Refused outright, by their first four bytes: the first makes some runtimes skip the interface
// table when it exists, the second belongs to NVIDIA's management library. Both go on without,
// silently, and only those that got a table would call into it.
constexpr uint8_t kRefusedUuids[][4] = {{0xf8, 0xcf, 0xf9, 0x51}, {0x69, 0xa2, 0x8e, 0x9f}};

constinit Mutex unknown_lock;
Uuid unknown_uuids[kUnknownTables];  // written once each, under the lock, before the table is
                                     // handed out
std::atomic<int> unknown_count{0};

std::atomic<uint32_t> slot_calls[kTableCount][kUnknownTableWords];
std::atomic<uint64_t> all_slot_calls{0};

// Writes the UUID as text into `text`, which has room for 37 characters.
void FormatUuid(const Uuid& uuid, char* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *text++ = '-';
    *text++ = kDigits[uuid.bytes[i] >> 4];
    *text++ = kDigits[uuid.bytes[i] & 15];
  }
  *text = 0;
}

void LogUnknownTable(const Uuid& uuid) {
  char name[37];
  FormatUuid(uuid, name);
  char line[128];
  std::snprintf(line, sizeof(line),
                "cuda: export table %s is unknown; its functions are not supported", name);
  Hooks().log(line);
}

void LogUnsupportedSlot(const Uuid& uuid, size_t slot) {
  char name[37];
  FormatUuid(uuid, name);
  char line[128];
  std::snprintf(line, sizeof(line), "cuda: export table %s function %zu is not supported", name,
                slot);
  Hooks().log(line);
}

// Out of line: more than a thousand stubs call it.
[[gnu::noinline]] Word OnUnsupportedSlot(int table, size_t slot) {
  all_slot_calls.fetch_add(1, std::memory_order_relaxed);
  if (slot_calls[table][slot].fetch_add(1, std::memory_order_relaxed) == 0) {
    LogUnsupportedSlot(
        table < kFirstUnknown ? kKnownUuids[table] : unknown_uuids[table - kFirstUnknown], slot);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <int kTable, size_t kSlot>
Word Unsupported(Word, Word, Word, Word, Word) {
  return OnUnsupportedSlot(kTable, kSlot);
}

// A table as callers see it: its size in bytes, then the functions. Index 1 is functions[0].
template <size_t kWords>
struct Table {
  size_t size_bytes;
  Slot functions[kWords - 1];

  constexpr Table& Set(size_t index, Slot slot) {
    functions[index - 1] = slot;
    return *this;
  }
};

template <int kTable, size_t... kIndex>
constexpr Table<sizeof...(kIndex) + 1> MakeTable(std::index_sequence<kIndex...>) {
  return {(sizeof...(kIndex) + 1) * sizeof(Word), {&Unsupported<kTable, kIndex + 1>...}};
}
template <int kTable, size_t kWords>
constexpr Table<kWords> MakeTable() {
  return MakeTable<kTable>(std::make_index_sequence<kWords - 1>());
}

// CUDART_INTERFACE

Word LoadModule(Word module, Word image, Word, Word, Word) {
  return Hooks().load_module(Pointer<CUmodule>(module), Pointer<const void>(image));
}

Word LoadModuleFromFatbin(Word image, Word module, Word, Word, Word) {
  return Hooks().load_module(Pointer<CUmodule>(module), Pointer<const void>(image));
}

Word PrimaryContext(Word context, Word device, Word, Word, Word) {
  return Hooks().primary_context(static_cast<CUdevice>(device), Pointer<CUcontext>(context));
}

Word Succeed(Word, Word, Word, Word, Word) { return CUDA_SUCCESS; }

constexpr Table<13> MakeInterface() {
  return MakeTable<kInterface, 13>()
      .Set(1, &LoadModule)
      .Set(2, &PrimaryContext)
      .Set(6, &LoadModule)
      .Set(7, &Succeed)
      .Set(8, &LoadModuleFromFatbin)
      .Set(12, &Succeed);  // "load the compilers": they are the executor's
}
constinit const Table<13> interface_table = MakeInterface();

// TOOLS_RUNTIME_CALLBACK_HOOKS: buffers in which a profiler would be announced

uint64_t tools_callbacks[1024];
uint64_t tools_domains[14];

Word ToolsCallbacks(Word buffer, Word count, Word, Word, Word) {
  *Pointer<void*>(buffer) = tools_callbacks;
  *Pointer<size_t>(count) = sizeof(tools_callbacks) / sizeof(tools_callbacks[0]);
  return CUDA_SUCCESS;
}

Word ToolsDomains(Word buffer, Word count, Word, Word, Word) {
  *Pointer<void*>(buffer) = tools_domains;
  *Pointer<size_t>(count) = sizeof(tools_domains) / sizeof(tools_domains[0]);
  return CUDA_SUCCESS;
}

constinit const Table<7> tools_hooks_table =
    MakeTable<kToolsHooks, 7>().Set(2, &ToolsCallbacks).Set(6, &ToolsDomains);

// TOOLS_TLS and CU_ETID_ToolsContext: current context and its id, cuBLASLt's keys

Word CurrentContext(Word context, Word, Word, Word, Word) {
  return Hooks().current_context(Pointer<CUcontext>(context));
}

Word ContextId(Word context, Word id, Word, Word, Word) {
  return Hooks().context_id(Pointer<CUctx_st>(context), Pointer<uint64_t>(id));
}

// cuBLAS keeps scratch memory by stream: it asks for the stream behind a handle (51), then for what
// tells that stream from all others (39). The stream is known by its number, never null.
Word StreamOfHandle(Word, Word stream, Word out, Word per_thread, Word) {
  if (out == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned long long id = 0;
  const auto ask = per_thread != 0 ? Hooks().stream_id_ptsz : Hooks().stream_id;
  const CUresult result = ask(Pointer<CUstream_st>(stream), &id);
  if (result == CUDA_SUCCESS) *Pointer<Word>(out) = id + 1;
  return result;
}

Word StreamIdentity(Word, Word stream, Word id, Word, Word) {
  if (stream == 0 || id == 0) return CUDA_ERROR_INVALID_VALUE;
  *Pointer<Word>(id) = stream - 1;
  return CUDA_SUCCESS;
}

constinit const Table<4> tools_tls_table = MakeTable<kToolsTls, 4>().Set(2, &CurrentContext);
constinit const Table<93> tools_context_table = MakeTable<kToolsContext, 93>()
                                                    .Set(4, &ContextId)
                                                    .Set(39, &StreamIdentity)
                                                    .Set(51, &StreamOfHandle);

// CONTEXT_LOCAL_STORAGE: no size in front, null at the end

// Null and -1 mean the current context. 0 when there is none.
Word RealContext(Word context) {
  if (context != 0 && context != ~Word{0}) return context;
  CUcontext current = nullptr;
  if (Hooks().current_context(&current) != CUDA_SUCCESS) return 0;
  return reinterpret_cast<Word>(current);
}

Word StoragePut(Word context, Word key, Word value, Word destructor, Word) {
  const Word real = RealContext(context);
  if (real == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const auto function = reinterpret_cast<ContextStorage::Destructor>(destructor);
  return storage.Put(real, key, value, function) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

Word StorageDelete(Word context, Word key, Word, Word, Word) {
  const Word real = RealContext(context);
  return real != 0 && storage.Delete(real, key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

Word StorageGet(Word value, Word context, Word key, Word, Word) {
  const Word real = RealContext(context);
  return real != 0 && storage.Get(real, key, Pointer<Word>(value)) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_HANDLE;
}

// Not analysed: the lock is taken in one function and released in the other, which pthread_atfork calls.
void BeforeFork() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { storage.LockForFork(); }
void AfterFork() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { storage.UnlockAfterFork(); }
// Not pthread_once, whose symbol's version is newer than the glibc that containers may have.
constinit std::atomic<bool> forks_handled{false};
void HandleForks() {
  if (!forks_handled.exchange(true)) pthread_atfork(&BeforeFork, &AfterFork, &AfterFork);
}

constinit const Slot context_storage_table[] = {&StoragePut, &StorageDelete, &StorageGet, nullptr};

// CONTEXT_CHECKS: is this a context of another interface, or a wrapped one? Never here

Word ContextCheck(Word, Word result, Word, Word, Word) {
  *Pointer<uint32_t>(result) = 0;
  return CUDA_SUCCESS;
}

constinit const Table<4> context_checks_table =
    MakeTable<kContextChecks, 4>().Set(2, &ContextCheck).Set(3, &Succeed);

// INTEGRITY_CHECK

Word Integrity(Word version, Word unix_seconds, Word result, Word, Word);

constinit const Table<3> integrity_table = MakeTable<kIntegrity, 3>().Set(1, &Integrity);

Word Integrity(Word version, Word unix_seconds, Word result, Word, Word) {
  const RuntimeHooks& hooks = Hooks();
  if (!hooks.handshake_allowed()) return CUDA_ERROR_NOT_SUPPORTED;
  RuntimeDevice devices[kMaxRuntimeDevices] = {};
  int count = hooks.device_count();
  if (count > kMaxRuntimeDevices) count = kMaxRuntimeDevices;
  for (int i = 0; i < count; ++i) hooks.device_identity(i, &devices[i]);
  const HandshakeSubject subject{
      .driver_version = static_cast<uint32_t>(hooks.driver_version()),
      .version = static_cast<uint32_t>(version),
      .process = static_cast<uint32_t>(getpid()),
      .thread = static_cast<uint32_t>(pthread_self()),
      .interface_table = reinterpret_cast<uint64_t>(&interface_table),
      .integrity_table = reinterpret_cast<uint64_t>(&integrity_table),
      .integrity_function = reinterpret_cast<uint64_t>(integrity_table.functions[0]),
      .unix_seconds = unix_seconds,
  };
  const HandshakeAnswer answer =
      AnswerHandshake(subject, devices, static_cast<size_t>(count > 0 ? count : 0));
  std::memcpy(Pointer<void>(result), answer.words, sizeof(answer.words));
  return CUDA_SUCCESS;
}

// 1734dc26: where the GPU's parts lie. cuBLASLt asks, and does without when the slots say
// NOT_SUPPORTED

constinit const Table<17> gpc_layout_table = MakeTable<kGpcLayout, 17>();

// CU_ETID_ToolsModule: cuFFT lists a module's functions through it

// Calls `visit` for each function, with the caller's own word, the function and its module. Answers
// how many there were.
Word VisitFunctions(Word, Word module_word, Word visit_word, Word opaque, Word) {
  const auto module = Pointer<CUmod_st>(module_word);
  unsigned count = 0;
  if (Hooks().function_count(&count, module) != CUDA_SUCCESS || count == 0) return 0;
  auto* functions = static_cast<CUfunction*>(malloc(count * sizeof(CUfunction)));
  if (functions == nullptr) return 0;
  if (Hooks().list_functions(functions, count, module) != CUDA_SUCCESS) count = 0;
  const auto visit = reinterpret_cast<void (*)(void*, CUfunction, CUmodule)>(visit_word);
  for (unsigned i = 0; i < count && visit != nullptr; ++i) {
    visit(Pointer<void>(opaque), functions[i], module);
  }
  free(functions);
  return count;
}

constinit const Table<17> tools_module_table =
    MakeTable<kToolsModule, 17>().Set(7, &VisitFunctions);

// The cache of compiled code (compile_cache.h). What the functions take was seen with NVRTC 13.0
// and driver 580; a driver serves every release of NVRTC by this table, so all of them call it so.
// Nothing was seen to call the fifth.

CUresult MakeKey(CompileCacheKey** key, uint32_t kind, const void* data, size_t data_bytes,
                 const char* options, const char* host, const char* compiler, uint32_t architecture,
                 Word more) {
  // The key has a further input, whose meaning is not known.
  if (more != 0) return CUDA_ERROR_NOT_INITIALIZED;
  return MakeCompileCacheKey({kind, data, data_bytes, options, host, compiler, architecture}, key);
}

CUresult DestroyKey(CompileCacheKey* key) {
  DestroyCompileCacheKey(key);
  return CUDA_SUCCESS;
}

CUresult Find(const CompileCacheKey* key, Word, void** data, uint32_t* data_bytes) {
  return key == nullptr ? CUDA_ERROR_INVALID_VALUE : FindCompiled(*key, data, data_bytes);
}

CUresult Keep(const CompileCacheKey* key, Word, const void* data, uint32_t data_bytes) {
  return key == nullptr ? CUDA_ERROR_INVALID_VALUE : KeepCompiled(*key, data, data_bytes);
}

CUresult FreeFound(void* data) {
  free(data);
  return CUDA_SUCCESS;
}

struct CompileCacheTable {
  size_t size_bytes = sizeof(CompileCacheTable);
  decltype(&MakeKey) make_key = &MakeKey;
  decltype(&DestroyKey) destroy_key = &DestroyKey;
  decltype(&Find) find = &Find;
  decltype(&Keep) keep = &Keep;
  Slot fifth = &Unsupported<kCompileCache, 5>;
  decltype(&FreeFound) free_found = &FreeFound;
};
constinit const CompileCacheTable compile_cache_table;

// Unknown tables

using UnknownTable = Table<kUnknownTableWords>;
template <int... kIndex>
struct UnknownTables {
  static constexpr UnknownTable kTables[] = {
      MakeTable<kFirstUnknown + kIndex, kUnknownTableWords>()...};
};
template <int... kIndex>
constexpr const UnknownTable* TablesOf(std::integer_sequence<int, kIndex...>) {
  return UnknownTables<kIndex...>::kTables;
}
constexpr const UnknownTable* kUnknown =
    TablesOf(std::make_integer_sequence<int, kUnknownTables>());

const void* FindOrAddUnknown(const Uuid& uuid) GPULOOM_EXCLUDES(unknown_lock) {
  MutexLock lock(unknown_lock);
  const int count = unknown_count.load(std::memory_order_relaxed);
  int index = 0;
  while (index < count && std::memcmp(&unknown_uuids[index], &uuid, sizeof(uuid)) != 0) ++index;
  const bool added = index == count && count < kUnknownTables;
  if (added) {
    unknown_uuids[index] = uuid;
    unknown_count.store(count + 1, std::memory_order_relaxed);
  }
  lock.Unlock();
  if (added) LogUnknownTable(uuid);
  return &kUnknown[index < kUnknownTables ? index : kUnknownTables - 1];
}

const void* FindKnown(const Uuid& uuid) {
  const void* const tables[kFirstUnknown] = {
      &interface_table,      &tools_hooks_table,   &tools_tls_table,     &context_storage_table,
      &context_checks_table, &integrity_table,     &tools_context_table, &gpc_layout_table,
      &tools_module_table,   &compile_cache_table,
  };
  for (int i = 0; i < kFirstUnknown; ++i) {
    if (std::memcmp(&kKnownUuids[i], &uuid, sizeof(uuid)) == 0) return tables[i];
  }
  return nullptr;
}

}  // namespace

CUresult AnswerGetExportTable(const RuntimeHooks& hooks, const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  registered_hooks.store(&hooks, std::memory_order_release);
  HandleForks();
  Uuid uuid;
  std::memcpy(&uuid, id, sizeof(uuid));
  *table = nullptr;
  for (const auto& refused : kRefusedUuids) {
    if (std::memcmp(refused, uuid.bytes, sizeof(refused)) == 0) return CUDA_ERROR_NOT_FOUND;
  }
  *table = FindKnown(uuid);
  if (*table == nullptr) *table = FindOrAddUnknown(uuid);
  return CUDA_SUCCESS;
}

void ResetRuntimeContext(CUcontext context) {
  storage.ResetContext(reinterpret_cast<Word>(context));
}

uint64_t UnsupportedSlotCalls() { return all_slot_calls.load(std::memory_order_relaxed); }

}  // namespace gpuloom
