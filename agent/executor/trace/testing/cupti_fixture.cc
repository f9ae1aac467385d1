// SPDX-License-Identifier: Apache-2.0
// Stands in for libcupti.so: hands out the records that a test has put in, of the kinds that are enabled, when it is flushed.
// A stream's number is the lower half of its handle.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using Requested = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

constexpr uint32_t kMemcpy = 1, kMemset = 2, kKernel = 10;
constexpr int kInvalidKind = 21, kMaxLimitReached = 12;
// As CUPTI's own records of CUDA 13.
constexpr size_t kKernelBytes = 216, kCopyBytes = 96;

std::mutex mutex;
Requested requested = nullptr;
Completed completed = nullptr;
std::set<uint32_t> enabled;
std::vector<std::vector<uint8_t>> pending;
int answer_to_enable = 0;
size_t dropped = 0;

size_t SizeOf(uint32_t kind) { return kind == kKernel ? kKernelBytes : kCopyBytes; }

template <typename T>
void Put(std::vector<uint8_t>* record, size_t at, T value) {
  std::memcpy(record->data() + at, &value, sizeof(value));
}

void Add(std::vector<uint8_t> record) {
  const std::lock_guard lock(mutex);
  uint32_t kind = 0;
  std::memcpy(&kind, record.data(), sizeof(kind));
  if (enabled.count(kind) != 0) pending.push_back(std::move(record));
}

}  // namespace

extern "C" {

// ---- for tests

void FixtureKernel(uint32_t stream, uint64_t start, uint64_t end, uint32_t correlation,
                   uint64_t node, const char* name) {
  std::vector<uint8_t> record(kKernelBytes);
  Put(&record, 0, kKernel);
  Put(&record, 16, start);
  Put(&record, 24, end);
  Put(&record, 48, stream);
  Put(&record, 92, correlation);
  Put(&record, 104, name);
  Put(&record, 144, node);
  Add(std::move(record));
}
void FixtureCopy(uint32_t stream, uint64_t start, uint64_t end, uint8_t copy_kind, uint64_t bytes) {
  std::vector<uint8_t> record(kCopyBytes);
  Put(&record, 0, kMemcpy);
  Put(&record, 4, copy_kind);
  Put(&record, 8, bytes);
  Put(&record, 16, start);
  Put(&record, 24, end);
  Put(&record, 40, stream);
  Add(std::move(record));
}
void FixtureRefuse(int result) {
  const std::lock_guard lock(mutex);
  answer_to_enable = result;
}
size_t FixtureEnabled() {
  const std::lock_guard lock(mutex);
  return enabled.size();
}
void FixtureDrop(size_t records) {
  const std::lock_guard lock(mutex);
  dropped += records;
}

// ---- CUPTI's

int cuptiGetVersion(uint32_t* version) {
  *version = 130000;
  return 0;
}
int cuptiGetResultString(int result, const char** text) {
  *text = result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_UNKNOWN";
  return 0;
}
int cuptiActivityRegisterTimestampCallback(uint64_t (*)()) { return 0; }
int cuptiActivityRegisterCallbacks(Requested on_requested, Completed on_completed) {
  const std::lock_guard lock(mutex);
  requested = on_requested;
  completed = on_completed;
  return 0;
}
int cuptiActivityEnable(uint32_t kind) {
  const std::lock_guard lock(mutex);
  if (answer_to_enable != 0) return answer_to_enable;
  enabled.insert(kind);
  return 0;
}
int cuptiActivityDisable(uint32_t kind) {
  const std::lock_guard lock(mutex);
  enabled.erase(kind);
  return 0;
}
int cuptiActivityFlushAll(uint32_t) {
  std::vector<std::vector<uint8_t>> records;
  {
    const std::lock_guard lock(mutex);
    records.swap(pending);
  }
  for (size_t i = 0; i < records.size();) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0, used = 0;
    requested(&buffer, &size, &most);
    if (buffer == nullptr) {
      FixtureDrop(records.size() - i);
      return 0;
    }
    for (; i < records.size() && used + records[i].size() <= size; ++i) {
      std::memcpy(buffer + used, records[i].data(), records[i].size());
      used += records[i].size();
    }
    completed(nullptr, 0, buffer, size, used);
  }
  return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  uint8_t* next = buffer;
  if (*record != nullptr) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof(kind));
    next = *record + SizeOf(kind);
  }
  if (next >= buffer + valid) return kMaxLimitReached;
  uint32_t kind = 0;
  std::memcpy(&kind, next, sizeof(kind));
  if (kind != kKernel && kind != kMemcpy && kind != kMemset) return kInvalidKind;
  *record = next;
  return 0;
}
int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* count) {
  const std::lock_guard lock(mutex);
  *count = dropped;
  dropped = 0;
  return 0;
}
int cuptiGetStreamIdEx(void*, void* stream, uint8_t, uint32_t* id) {
  *id = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(stream));
  return 0;
}

}  // extern "C"
