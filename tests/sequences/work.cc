// SPDX-License-Identifier: Apache-2.0
// Operations of streams: what they are, how they are queued or become nodes, and what they do.
#include <algorithm>
#include <cstring>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

// Kernels are interpreted on the software driver.
constexpr uint32_t kKernelWords = 1024;
constexpr uint32_t kCopyWords = 32u << 10;

CUDA_MEMCPY3D LineCopy(const Buffer& to, uint32_t to_first, const Buffer& from, uint32_t from_first,
                       uint32_t count) {
  CUDA_MEMCPY3D copy = {};
  copy.WidthInBytes = size_t{count} * 4;
  copy.Height = copy.Depth = 1;
  if (to.OnDevice()) {
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to.device + size_t{to_first} * 4;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to.host + to_first;
  }
  if (from.OnDevice()) {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from.device + size_t{from_first} * 4;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from.host + from_first;
  }
  copy.dstPitch = copy.srcPitch = copy.WidthInBytes;
  copy.dstHeight = copy.srcHeight = 1;
  return copy;
}

// Compares memory with what it must hold when the stream comes to it. Deletes itself.
struct Expectation {
  const uint32_t* memory;
  std::vector<uint32_t> words;
  uint32_t buffer;
};

void CUDA_CB CheckExpectation(void* data) {
  const std::unique_ptr<Expectation> expected(static_cast<Expectation*>(data));
  for (size_t i = 0; i < expected->words.size(); ++i) {
    if (expected->memory[i] != expected->words[i]) {
      Fail("a host function finds word " + std::to_string(i) + " of its part of buffer " +
           std::to_string(expected->buffer) + " to be " + std::to_string(expected->memory[i]) +
           " instead of " + std::to_string(expected->words[i]));
    }
  }
}

void CUDA_CB CheckExpectationOfStream(CUstream, CUresult status, void* data) {
  Judge("a stream's callback", status);
  CheckExpectation(data);
}

// Changes memory when a graph comes to it.
struct Addition {
  uint32_t* memory;
  uint32_t count;
  uint32_t value;
};

void CUDA_CB Add(void* data) {
  const Addition& addition = *static_cast<const Addition*>(data);
  for (uint32_t i = 0; i < addition.count; ++i) addition.memory[i] += addition.value;
}

}  // namespace

CUfunction ModuleObject::Function(const char* name) {
  CUfunction& function = functions[name];
  if (function == nullptr) {
    if (library != nullptr) {
      CUkernel kernel = nullptr;
      DO(cuLibraryGetKernel, &kernel, library, name);
      DO(cuKernelGetFunction, &function, kernel);
    } else {
      DO(cuModuleGetFunction, &function, module, name);
    }
  }
  return function;
}

std::shared_ptr<Work> World::MakeWork(bool for_graph) {
  const uint32_t number = random_.Below(100);
  std::shared_ptr<Work> work;
  if (number >= 60 && number < 75) work = MakeFill(for_graph);
  if (number >= 75 && number < 95) work = MakeCopy(for_graph);
  if (number >= 95 && for_graph) work = MakeHost();
  if (work == nullptr) work = MakeKernel(for_graph);
  return work;
}

std::shared_ptr<Work> World::MakeKernel(bool for_graph) {
  const BufferRef buffer = AnyBuffer([](const Buffer& b) { return b.device != 0; });
  if (buffer == nullptr) return nullptr;
  auto work = std::make_shared<Work>();
  work->kind = Work::Kind::kKernel;
  work->module = AnyModule();
  work->buffers.push_back(buffer);
  uint32_t first, count;
  AnyPart(*buffer, kKernelWords, &first, &count);
  work->first = first;
  const uint32_t value = static_cast<uint32_t>(random_.Next());
  work->block = 32u << random_.Below(4);
  work->grid = (count + work->block - 1) / work->block;
  work->values[0] = buffer->device + size_t{first} * 4;
  work->values[1] = count;
  work->values[2] = value;
  work->value_count = 3;
  const BufferRef table = work->module->table, board = work->module->board;
  const bool owned = !work->module->shared;  // whose variables change
  switch (random_.Below(7)) {
    case 0:
      work->name = "add";
      work->apply = [=] {
        for (uint32_t i = 0; i < count; ++i) buffer->words[first + i] += value;
      };
      break;
    case 1:
      work->name = "mix";
      work->apply = [=] {
        for (uint32_t i = 0; i < count; ++i) {
          uint32_t& word = buffer->words[first + i];
          word = word * 1664525 + value + i;
        }
      };
      break;
    case 2: {
      work->name = "stamp";
      const uint32_t stamp = work->module->stamp;
      work->apply = [=] {
        for (uint32_t i = 0; i < count; ++i) {
          uint32_t& word = buffer->words[first + i];
          word = (word ^ stamp) + value;
        }
      };
      break;
    }
    case 3: {
      const BufferRef from = AnyBuffer([&](const Buffer& b) {
        return b.device != 0 && b.number != buffer->number && b.size() >= count;
      });
      if (from == nullptr) return nullptr;
      work->name = "copy";
      const uint32_t from_first = random_.Below(from->size() - count + 1);
      work->buffers.push_back(from);
      work->values[1] = from->device + size_t{from_first} * 4;
      work->values[2] = count;
      work->values[3] = value;
      work->value_count = 4;
      work->apply = [=] {
        for (uint32_t i = 0; i < count; ++i) {
          buffer->words[first + i] = from->words[from_first + i] ^ value;
        }
      };
      break;
    }
    case 4:
      if (!owned || (board != nullptr && random_.Chance(50))) {
        if (!owned || board == nullptr) return nullptr;
        work->name = "note";
        work->buffers.push_back(board);
        work->apply = [=] {
          for (uint32_t i = 0; i < count; ++i) buffer->words[first + i] ^= board->words[i % 64];
        };
      } else {
        work->name = "bump";
        work->buffers.push_back(table);
        work->apply = [=] {
          for (uint32_t i = 0; i < count; ++i) buffer->words[first + i] += table->words[i % 64];
        };
      }
      work->value_count = 2;
      break;
    case 5: {
      work->name = "reverse";
      const uint32_t block = work->block;
      const uint32_t whole = count / block * block;
      if (whole == 0) return nullptr;
      work->grid = whole / block;
      work->values[1] = whole;
      work->shared_bytes = block * 4;
      work->apply = [=] {
        for (uint32_t begin = first; begin < first + whole; begin += block) {
          std::reverse(buffer->words.begin() + begin, buffer->words.begin() + begin + block);
          for (uint32_t i = 0; i < block; ++i) buffer->words[begin + i] += value;
        }
      };
      break;
    }
    default:
      // Something of the module's own that changes, by a kernel.
      if (!owned || for_graph) return nullptr;
      work->name = "add";
      work->buffers[0] = table;
      work->block = 64;
      work->grid = 1;
      work->values[0] = table->device;
      work->values[1] = table->size();
      work->apply = [=] {
        for (uint32_t& word : table->words) word += value;
      };
  }
  work->function = work->module->Function(work->name.c_str());
  return work;
}

std::shared_ptr<Work> World::MakeFill(bool for_graph) {
  const BufferRef buffer = AnyBuffer([&](const Buffer& b) { return b.OnDevice() || !for_graph; });
  if (buffer == nullptr) return nullptr;
  auto work = std::make_shared<Work>();
  work->kind = Work::Kind::kFill;
  work->name = "fill";
  work->buffers.push_back(buffer);
  uint32_t first, count;
  AnyPart(*buffer, kCopyWords, &first, &count);
  work->first = first;
  // Rows of some words each, with a gap between them.
  uint32_t rows = 1, width = count, pitch = count;
  if (count >= 8 && random_.Chance(30)) {
    rows = random_.Between(2, 4);
    pitch = count / rows;
    width = random_.Between(1, pitch);
  }
  const uint32_t element = 1u << random_.Below(3);
  uint32_t value = static_cast<uint32_t>(random_.Next());
  if (element == 1) value &= 0xff;
  if (element == 2) value &= 0xffff;
  const uint32_t word = element == 1   ? value * 0x01010101u
                        : element == 2 ? value * 0x10001u
                                       : value;
  work->fill.dst = buffer->device + size_t{first} * 4;
  work->fill.pitch = size_t{pitch} * 4;
  work->fill.value = value;
  work->fill.elementSize = element;
  work->fill.width = size_t{width} * 4 / element;
  work->fill.height = rows;
  work->apply = [=] {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t i = 0; i < width; ++i) buffer->words[first + row * pitch + i] = word;
    }
  };
  return work;
}

std::shared_ptr<Work> World::MakeCopy(bool for_graph) {
  const auto copyable = [for_graph](const Buffer& b) {
    return b.OnDevice() || b.place == Place::kPinned || (!for_graph && b.host != nullptr);
  };
  const BufferRef to = AnyBuffer(copyable);
  const BufferRef from = AnyBuffer(
      [&](const Buffer& b) { return copyable(b) && to != nullptr && b.number != to->number; });
  if (to == nullptr || from == nullptr) return nullptr;
  auto work = std::make_shared<Work>();
  work->kind = Work::Kind::kCopy;
  work->name = "copying";
  work->buffers = {to, from};
  const uint32_t count = random_.Between(1, std::min({to->size(), from->size(), kCopyWords}));
  const uint32_t to_first = random_.Below(to->size() - count + 1);
  const uint32_t from_first = random_.Below(from->size() - count + 1);
  work->first = to_first;
  work->copy = LineCopy(*to, to_first, *from, from_first, count);
  uint32_t rows = 1, width = count, pitch = count;
  if (count >= 8 && random_.Chance(30)) {
    rows = random_.Between(2, 4);
    pitch = count / rows;
    width = random_.Between(1, pitch);
    work->copy.WidthInBytes = size_t{width} * 4;
    work->copy.Height = rows;
    work->copy.dstPitch = work->copy.srcPitch = size_t{pitch} * 4;
    work->copy.dstHeight = work->copy.srcHeight = rows;
  }
  work->apply = [=] {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t i = 0; i < width; ++i) {
        to->words[to_first + row * pitch + i] = from->words[from_first + row * pitch + i];
      }
    }
  };
  return work;
}

std::shared_ptr<Work> World::MakeHost() {
  const BufferRef buffer = AnyBuffer([](const Buffer& b) { return b.place == Place::kPinned; });
  if (buffer == nullptr) return nullptr;
  auto work = std::make_shared<Work>();
  work->kind = Work::Kind::kHost;
  work->name = "host function";
  work->buffers.push_back(buffer);
  uint32_t first, count;
  AnyPart(*buffer, kKernelWords, &first, &count);
  const uint32_t value = static_cast<uint32_t>(random_.Next());
  auto addition = std::make_shared<Addition>(Addition{buffer->host + first, count, value});
  {
    std::lock_guard<std::mutex> lock(shared_->kept_mutex);
    shared_->kept.push_back(addition);
  }
  work->host.fn = Add;
  work->host.userData = addition.get();
  work->apply = [=] {
    for (uint32_t i = 0; i < count; ++i) buffer->words[first + i] += value;
  };
  return work;
}

void World::Queue(const StreamRef& stream, const std::shared_ptr<Work>& work) {
  journal_.Note("%s of %u at %u in stream %u", work->name.c_str(), work->buffers[0]->number,
                work->first, stream->number);
  for (const BufferRef& buffer : work->buffers) Join(stream, &buffer->uses);
  if (work->module != nullptr && !work->module->shared) AddUse(stream, &work->module->uses);
  Enqueue(stream->handle, *work, /*capturing=*/false);
  work->apply();
  // Sometimes a host function looks at what is there now.
  const BufferRef& last = work->buffers.front();
  if (last->host == nullptr || !random_.Chance(10)) return;
  uint32_t first, count;
  AnyPart(*last, 64, &first, &count);
  auto expected = std::make_unique<Expectation>();
  expected->memory = last->host + first;
  expected->words.assign(last->words.begin() + first, last->words.begin() + first + count);
  expected->buffer = last->number;
  if (random_.Chance(70)) {
    DO(cuLaunchHostFunc, stream->handle, CheckExpectation, expected.release());
  } else {
    DO(cuStreamAddCallback, stream->handle, CheckExpectationOfStream, expected.release(), 0);
  }
}

namespace {

// The same by one of the functions that can do it.
void EnqueueKernel(CUstream stream, Work& work, Random& random, bool capturing) {
  void* pointers[5];
  work.Parameters(pointers);
  switch (random.Below(8)) {
    case 0: {  // packed
      uint8_t packed[32];
      size_t bytes = 0;
      for (int i = 0; i < work.value_count; ++i) {
        // Pointers come first and are 8 bytes; what is behind them is 4.
        const bool wide = i == 0 || (i == 1 && work.value_count == 4);
        std::memcpy(packed + bytes, &work.values[i], wide ? 8 : 4);
        bytes += wide ? 8 : 4;
      }
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                       CU_LAUNCH_PARAM_END};
      DO(cuLaunchKernel, work.function, work.grid, 1, 1, work.block, 1, 1, work.shared_bytes,
         stream, nullptr, extra);
      return;
    }
    case 1:
      if (work.grid <= 8) {
        DO(cuLaunchCooperativeKernel, work.function, work.grid, 1, 1, work.block, 1, 1,
           work.shared_bytes, stream, pointers);
        return;
      }
      break;
    case 2: {
      CUlaunchConfig config = {};
      config.gridDimX = work.grid;
      config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
      config.blockDimX = work.block;
      config.sharedMemBytes = work.shared_bytes;
      config.hStream = stream;
      CUlaunchAttribute attribute = {};
      if (random.Chance(50) && !capturing) {
        attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        attribute.value.priority = -static_cast<int>(random.Below(3));
        config.attrs = &attribute;
        config.numAttrs = 1;
      } else if (work.grid <= 8) {
        attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute.value.cooperative = 1;
        config.attrs = &attribute;
        config.numAttrs = 1;
      }
      DO(cuLaunchKernelEx, &config, work.function, pointers, nullptr);
      return;
    }
    default:
      break;
  }
  DO(cuLaunchKernel, work.function, work.grid, 1, 1, work.block, 1, 1, work.shared_bytes, stream,
     pointers, nullptr);
}

void EnqueueFill(CUstream stream, const CUDA_MEMSET_NODE_PARAMS& fill) {
  if (fill.height > 1) {
    if (fill.elementSize == 1) {
      DO(cuMemsetD2D8Async, fill.dst, fill.pitch, static_cast<unsigned char>(fill.value),
         fill.width, fill.height, stream);
    } else if (fill.elementSize == 2) {
      DO(cuMemsetD2D16Async, fill.dst, fill.pitch, static_cast<unsigned short>(fill.value),
         fill.width, fill.height, stream);
    } else {
      DO(cuMemsetD2D32Async, fill.dst, fill.pitch, fill.value, fill.width, fill.height, stream);
    }
  } else if (fill.elementSize == 1) {
    DO(cuMemsetD8Async, fill.dst, static_cast<unsigned char>(fill.value), fill.width, stream);
  } else if (fill.elementSize == 2) {
    DO(cuMemsetD16Async, fill.dst, static_cast<unsigned short>(fill.value), fill.width, stream);
  } else {
    DO(cuMemsetD32Async, fill.dst, fill.value, fill.width, stream);
  }
}

void EnqueueCopy(CUstream stream, const CUDA_MEMCPY3D& copy, Random& random) {
  const bool to_host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  const bool from_host = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  if (copy.Height > 1) {
    if (random.Chance(50)) {
      DO(cuMemcpy3DAsync_v2, &copy, stream);
      return;
    }
    CUDA_MEMCPY2D flat = {};
    flat.dstMemoryType = copy.dstMemoryType;
    flat.dstHost = copy.dstHost;
    flat.dstDevice = copy.dstDevice;
    flat.dstPitch = copy.dstPitch;
    flat.srcMemoryType = copy.srcMemoryType;
    flat.srcHost = copy.srcHost;
    flat.srcDevice = copy.srcDevice;
    flat.srcPitch = copy.srcPitch;
    flat.WidthInBytes = copy.WidthInBytes;
    flat.Height = copy.Height;
    DO(cuMemcpy2DAsync_v2, &flat, stream);
    return;
  }
  const auto to = to_host ? reinterpret_cast<CUdeviceptr>(copy.dstHost) : copy.dstDevice;
  const auto from = from_host ? reinterpret_cast<CUdeviceptr>(copy.srcHost) : copy.srcDevice;
  if (random.Chance(30) || (to_host && from_host)) {
    DO(cuMemcpyAsync, to, from, copy.WidthInBytes, stream);
  } else if (to_host) {
    DO(cuMemcpyDtoHAsync_v2, copy.dstHost, from, copy.WidthInBytes, stream);
  } else if (from_host) {
    DO(cuMemcpyHtoDAsync_v2, to, copy.srcHost, copy.WidthInBytes, stream);
  } else {
    DO(cuMemcpyDtoDAsync_v2, to, from, copy.WidthInBytes, stream);
  }
}

}  // namespace

void World::Enqueue(CUstream stream, Work& work, bool capturing) {
  switch (work.kind) {
    case Work::Kind::kKernel:
      return EnqueueKernel(stream, work, random_, capturing);
    case Work::Kind::kFill:
      return EnqueueFill(stream, work.fill);
    case Work::Kind::kCopy:
      return EnqueueCopy(stream, work.copy, random_);
    case Work::Kind::kHost:
      DO(cuLaunchHostFunc, stream, work.host.fn, work.host.userData);
  }
}

CUgraphNode World::AddNode(CUgraph graph, Work& work, const std::vector<CUgraphNode>& after) {
  CUgraphNode node = nullptr;
  const CUgraphNode* before = after.empty() ? nullptr : after.data();
  switch (work.kind) {
    case Work::Kind::kKernel: {
      void* pointers[5];
      work.Parameters(pointers);
      CUDA_KERNEL_NODE_PARAMS_v2 params = {};
      params.func = work.function;
      params.gridDimX = work.grid;
      params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
      params.blockDimX = work.block;
      params.sharedMemBytes = work.shared_bytes;
      params.kernelParams = pointers;
      DO(cuGraphAddKernelNode_v2, &node, graph, before, after.size(), &params);
      break;
    }
    case Work::Kind::kFill:
      DO(cuGraphAddMemsetNode, &node, graph, before, after.size(), &work.fill, shared_->primary);
      break;
    case Work::Kind::kCopy:
      DO(cuGraphAddMemcpyNode, &node, graph, before, after.size(), &work.copy, shared_->primary);
      break;
    case Work::Kind::kHost:
      DO(cuGraphAddHostNode, &node, graph, before, after.size(), &work.host);
      break;
  }
  return node;
}

void World::Spin(const StreamRef& stream, uint64_t ns) {
  const ModuleRef module = AnyModule();
  if (!module->shared) AddUse(stream, &module->uses);
  void* pointers[] = {&ns, nullptr};
  DO(cuLaunchKernel, module->Function("spin"), 1, 1, 1, 1, 1, 1, 0, stream->handle, pointers,
     nullptr);
}

}  // namespace gpuloom::sequences
