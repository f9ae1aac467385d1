// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/jit_log.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "agent/softgpu/exec/machine/module.h"

namespace gpuloom::softgpu {
namespace {

// Numbers are passed inside the pointers; the driver puts its own back the same way, in the lower half.
uint32_t NumberOf(void* const* value) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*value));
}

template <typename T>
void SetNumber(void** value, T number) {
  static_assert(sizeof(number) == 4);
  std::memcpy(value, &number, sizeof(number));
}

}  // namespace

JitLog::JitLog(unsigned count, CUjit_option* options, void** values)
    : count_(count),
      options_(options),
      values_(values),
      info_capacity_(CapacityOf(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)),
      error_capacity_(CapacityOf(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)) {}

uint32_t JitLog::CapacityOf(CUjit_option size) const {
  void* const* const value = Find(size);
  return value == nullptr ? 0 : NumberOf(value);
}

void** JitLog::Find(CUjit_option option) const {
  if (options_ == nullptr || values_ == nullptr) return nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    if (options_[i] == option) return &values_[i];
  }
  return nullptr;
}

CUresult JitLog::Judge() const {
  if (count_ != 0 && (options_ == nullptr || values_ == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count_; ++i) {
    // Compared as a number: a value outside of the enumeration is a program's mistake.
    if (options_[i] < 0 || options_[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr std::pair<CUjit_option, CUjit_option> kBuffers[] = {
      {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES},
      {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}};
  for (const auto& [buffer, size] : kBuffers) {
    void* const* const text = Find(buffer);
    void* const* const capacity = Find(size);
    if ((text == nullptr) != (capacity == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    if (text != nullptr && *text == nullptr && NumberOf(capacity) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // The real driver divides by it.
  void* const* const threads = Find(CU_JIT_THREADS_PER_BLOCK);
  return threads != nullptr && NumberOf(threads) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// A text that does not fit counts with its NUL, as with the real driver.
void JitLog::Fill(CUjit_option buffer, CUjit_option size_option, uint32_t capacity,
                  std::string_view text) const {
  void** const at = Find(buffer);
  void** const size = Find(size_option);
  if (at == nullptr || size == nullptr || *at == nullptr || capacity == 0) return;
  const size_t length = std::min<size_t>(text.size(), capacity - 1);
  text.copy(static_cast<char*>(*at), length);
  static_cast<char*>(*at)[length] = '\0';
  const bool is_cut = length < text.size() && capacity > 1;
  *size = reinterpret_cast<void*>(uintptr_t{is_cut ? capacity : length});
}

// Only the requested options are written. The wall time is a float, put into the pointer's lower half.
void JitLog::Write(std::string_view info, std::string_view error) const {
  Fill(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_capacity_, info);
  Fill(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_capacity_, error);
  if (void** const time = Find(CU_JIT_WALL_TIME); time != nullptr) {
    using Milliseconds = std::chrono::duration<float, std::milli>;
    SetNumber(time, Milliseconds(std::chrono::steady_clock::now() - begin_).count());
  }
  // The number that was compiled for: never more than a block can have.
  if (void** const threads = Find(CU_JIT_THREADS_PER_BLOCK); threads != nullptr) {
    SetNumber(threads, std::min<uint32_t>(NumberOf(threads), kMaxThreadsPerBlock));
  }
}

void JitLog::WriteSuccess(const std::vector<std::string>& entries) const {
  std::string info;
  void* const* const verbose = Find(CU_JIT_LOG_VERBOSE);
  if (verbose != nullptr && NumberOf(verbose) != 0) {
    for (const std::string& name : entries) {
      info.append("softgpu info    : Compiled entry function '").append(name).append("'\n");
    }
  }
  Write(info, {});
}

}  // namespace gpuloom::softgpu
