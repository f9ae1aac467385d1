// SPDX-License-Identifier: Apache-2.0
// Work of streams: bursts of it, values that streams write and wait for, synchronous calls.
#include <algorithm>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

bool Few(World& world) {
  const uint32_t count = world.random().Between(1, 8);
  for (uint32_t i = 0; i < count; ++i) {
    if (const auto work = world.MakeWork(false)) world.Queue(world.AnyStream(), work);
  }
  return true;
}

bool Many(World& world) {
  const StreamRef stream = world.AnyStream();
  const uint32_t count = world.random().Between(20, 100);
  for (uint32_t i = 0; i < count; ++i) {
    if (const auto work = world.MakeWork(false)) world.Queue(stream, work);
  }
  return true;
}

// The same again and again, as real loops do.
bool Repeated(World& world) {
  std::vector<std::shared_ptr<Work>> works;
  for (uint32_t i = world.random().Between(1, 6); i-- > 0;) {
    if (auto work = world.MakeWork(false)) works.push_back(work);
  }
  if (works.empty()) return false;
  const StreamRef stream = world.AnyStream();
  for (uint32_t turn = world.random().Between(5, 20); turn-- > 0;) {
    for (const auto& work : works) world.Queue(stream, work);
    if (world.random().Chance(20)) DO(cuStreamSynchronize, stream->handle);
  }
  return true;
}

// One stream writes a word, another waits for it: without an event.
bool Values(World& world) {
  const BufferRef buffer = world.AnyBuffer([](const Buffer& b) {
    return (b.place == Place::kDevice || b.place == Place::kPinned) && b.size() >= 4;
  });
  if (buffer == nullptr) return false;
  Random& random = world.random();
  const StreamRef writer = world.AnyStream(), waiter = world.AnyStream();
  // The legacy stream's barrier and a wait must not make a circle.
  if (writer->legacy || waiter->legacy) return false;
  world.journal().Note("buffer %u, from stream %u to %u", buffer->number, writer->number,
                       waiter->number);
  // Older contents may be greater than what is written.
  const bool greater = random.Chance(30);
  if (greater) world.Finish(&buffer->uses);
  world.Join(writer, &buffer->uses);
  const uint32_t i = random.Below(buffer->size() / 2) * 2;
  const CUdeviceptr address = buffer->device + size_t{i} * 4;
  uint32_t& word = buffer->words[i];
  if (random.Chance(50)) world.Spin(writer, random.Between(1, 100) * 1000);
  if (random.Chance(40)) {
    const uint64_t value = (uint64_t{buffer->words[i + 1] ^ 5u} << 32) | (word + 1u);
    DO(cuStreamWriteValue64_v2, writer->handle, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    DO(cuStreamWaitValue64_v2, waiter->handle, address, value, CU_STREAM_WAIT_VALUE_EQ);
    word = static_cast<uint32_t>(value);
    buffer->words[i + 1] = static_cast<uint32_t>(value >> 32);
  } else {
    const uint32_t value = word + 1 + random.Below(1000);
    if (random.Chance(30)) {
      CUstreamBatchMemOpParams operations[2] = {};
      operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      operations[0].writeValue.address = address + 4;
      operations[0].writeValue.value = value;
      operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      operations[1].writeValue.address = address;
      operations[1].writeValue.value = value;
      DO(cuStreamBatchMemOp_v2, writer->handle, 2, operations, 0);
      buffer->words[i + 1] = value;
    } else {
      DO(cuStreamWriteValue32_v2, writer->handle, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
    DO(cuStreamWaitValue32_v2, waiter->handle, address, value,
       greater ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WAIT_VALUE_EQ);
    word = value;
  }
  buffer->uses.clear();
  buffer->uses.push_back({waiter, nullptr});
  return true;
}

// Several copies in one call, between pairs that share nothing.
bool Batch(World& world) {
  const StreamRef stream = world.AnyOwnStream();
  if (Cu().cuMemcpyBatchAsync_v2 == nullptr || stream == nullptr) return false;
  std::vector<BufferRef> free;
  for (const BufferRef& buffer : world.buffers) {
    if (buffer->place == Place::kDevice || buffer->place == Place::kPinned) free.push_back(buffer);
  }
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> bytes;
  while (free.size() >= 2 && to.size() < 3) {
    const BufferRef target = free.back(), source = free[free.size() - 2];
    free.resize(free.size() - 2);
    const uint32_t count = std::min({target->size(), source->size(), 4096u});
    world.Join(stream, &target->uses);
    world.Join(stream, &source->uses);
    to.push_back(target->device);
    from.push_back(source->device);
    bytes.push_back(size_t{count} * 4);
    std::copy(source->words.begin(), source->words.begin() + count, target->words.begin());
    world.journal().Note("%u to %u", source->number, target->number);
  }
  if (to.empty()) return false;
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  DO(cuMemcpyBatchAsync_v2, to.data(), from.data(), bytes.data(), to.size(), &attributes, &first, 1,
     stream->handle);
  return true;
}

// Calls without a stream: the legacy one's.
bool Synchronous(World& world) {
  const BufferRef to = world.AnyBuffer([](const Buffer& b) { return b.OnDevice(); });
  const BufferRef from = world.AnyBuffer(
      [&](const Buffer& b) { return b.OnDevice() && to != nullptr && b.number != to->number; });
  if (to == nullptr || from == nullptr) return false;
  world.journal().Note("%u to %u", from->number, to->number);
  world.Join(world.streams[0], &to->uses);
  const uint32_t count = std::min({to->size(), from->size(), 4096u});
  if (world.random().Chance(50)) {
    const auto value = static_cast<uint32_t>(world.random().Next());
    DO(cuMemsetD32_v2, to->device, value, count);
    std::fill(to->words.begin(), to->words.begin() + count, value);
  } else {
    world.Join(world.streams[0], &from->uses);
    DO(cuMemcpyDtoD_v2, to->device, from->device, size_t{count} * 4);
    std::copy(from->words.begin(), from->words.begin() + count, to->words.begin());
  }
  return true;
}

}  // namespace

std::vector<Step> WorkSteps() {
  return {{"work.few", 30, Few},          {"work.many", 5, Many},
          {"work.repeated", 3, Repeated}, {"work.values", 4, Values},
          {"work.batch", 3, Batch},       {"work.synchronous", 4, Synchronous}};
}

}  // namespace gpuloom::sequences
