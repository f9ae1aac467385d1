// SPDX-License-Identifier: Apache-2.0
// What a thread of the sequences has made and not destroyed yet, with the contents that its memory
// must have once everything queued so far is done.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sequences/report.h"

namespace gpuloom::sequences {

struct StreamObject {
  CUstream handle = nullptr;
  uint32_t number = 0;
  bool blocking = true;     // takes part in the legacy stream's barrier
  bool legacy = false;      // is the legacy stream
  bool per_thread = false;  // is a thread's own default stream
  CUgreenCtx green = nullptr;
  int priority = 0;
};
using StreamRef = std::shared_ptr<StreamObject>;

// Destroys its event, which may be pending.
struct EventObject {
  CUevent handle = nullptr;
  uint32_t number = 0;
  unsigned flags = 0;
  bool recorded = false;
  bool lost = false;  // with its context: nothing to destroy
  EventObject() = default;
  EventObject(const EventObject&) = delete;
  EventObject& operator=(const EventObject&) = delete;
  ~EventObject() {
    if (handle != nullptr && !lost) DO(cuEventDestroy_v2, handle);
  }
};
using EventRef = std::shared_ptr<EventObject>;

// Work that something was used by: everything in the stream so far, or before the event.
struct Use {
  StreamRef stream;
  EventRef event;
};
using Uses = std::vector<Use>;

struct PoolObject {
  CUmemoryPool handle = nullptr;
  uint32_t number = 0;
};
using PoolRef = std::shared_ptr<PoolObject>;

enum class Place { kDevice, kPooled, kManaged, kPinned, kRegistered, kMapped, kVariable };
const char* NameOf(Place place);

struct Buffer {
  Place place = Place::kDevice;
  uint32_t number = 0;
  CUdeviceptr device = 0;
  uint32_t* host = nullptr;  // where the host reads and writes it, or null
  std::vector<uint32_t> words;
  Uses uses;          // at most one
  bool gone = false;  // freed; graphs may still name it
  // What it was made of.
  PoolRef pool;                               // kPooled; null: the device's own
  void* pages = nullptr;                      // kRegistered
  size_t pages_bytes = 0;                     // kRegistered
  size_t reserved_bytes = 0;                  // kMapped
  CUmemGenericAllocationHandle physical = 0;  // kMapped; 0: released already

  uint32_t size() const { return static_cast<uint32_t>(words.size()); }
  bool OnDevice() const {
    return place == Place::kDevice || place == Place::kPooled || place == Place::kMapped ||
           place == Place::kVariable;
  }
};
using BufferRef = std::shared_ptr<Buffer>;

struct ModuleObject {
  uint32_t number = 0;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;  // or this
  uint32_t stamp = 0;
  bool shared = false;  // of all threads; unloaded with the episode
  bool gone = false;
  Uses uses;
  BufferRef table;
  BufferRef board;  // null: has none
  std::map<std::string, CUfunction> functions;
  CUfunction Function(const char* name);
};
using ModuleRef = std::shared_ptr<ModuleObject>;

// One operation of a stream, to be queued or to become a node of a graph.
struct Work {
  enum class Kind { kKernel, kFill, kCopy, kHost } kind = Kind::kKernel;
  std::string name;
  std::vector<BufferRef> buffers;  // that it touches; the first is changed
  uint32_t first = 0;              // of the first, from here on
  ModuleRef module;
  std::function<void()> apply;  // to the contents, once for each time it runs

  CUfunction function = nullptr;
  unsigned grid = 1;
  unsigned block = 1;
  unsigned shared_bytes = 0;
  uint64_t values[4] = {};
  int value_count = 0;
  void Parameters(void** pointers) {
    for (int i = 0; i < value_count; ++i) pointers[i] = &values[i];
    pointers[value_count] = nullptr;
  }

  CUDA_MEMSET_NODE_PARAMS fill = {};
  CUDA_MEMCPY3D copy = {};
  CUDA_HOST_NODE_PARAMS host = {};
};

// An executable graph and the graphs that it was made of.
struct ExecObject {
  CUgraphExec handle = nullptr;
  uint32_t number = 0;
  std::vector<std::shared_ptr<Work>> works;  // in an order in which they may run
  std::vector<BufferRef> buffers;
  std::vector<ModuleRef> modules;
  // Hand-made ones only: for updates.
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> nodes;  // of `works`
  bool lost = false;
  bool MayRun() const {
    for (const BufferRef& buffer : buffers) {
      if (buffer->gone) return false;
    }
    for (const ModuleRef& module : modules) {
      if (module->gone) return false;
    }
    return true;
  }
};
using ExecRef = std::shared_ptr<ExecObject>;

struct ArrayObject {
  uint32_t number = 0;
  CUarray array = nullptr;  // or, of a mipmapped one, its first level
  CUmipmappedArray mipmap = nullptr;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint32_t> words;
  Uses uses;
};
using ArrayRef = std::shared_ptr<ArrayObject>;

struct GreenObject {
  CUgreenCtx handle = nullptr;
  uint32_t number = 0;
};
using GreenRef = std::shared_ptr<GreenObject>;

}  // namespace gpuloom::sequences
