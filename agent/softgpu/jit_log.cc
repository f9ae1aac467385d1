#include "agent/softgpu/jit_log.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gpuloom::softgpu {
namespace {

// Sizes are passed as integers inside the pointers; the driver puts the filled length back the same
// way.
void Fill(void* buffer, void** size, std::string_view text) {
  const size_t capacity = static_cast<unsigned>(reinterpret_cast<uintptr_t>(*size));
  if (buffer == nullptr || capacity == 0) return;
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(buffer, text.data(), length);
  static_cast<char*>(buffer)[length] = '\0';
  *size = reinterpret_cast<void*>(static_cast<uintptr_t>(length));
}

}  // namespace

JitLog::JitLog(unsigned count, CUjit_option* options, void** values)
    : count_(options == nullptr || values == nullptr ? 0 : count),
      options_(options),
      values_(values) {}

void JitLog::Tell(std::string_view text) const {
  const auto find = [this](CUjit_option wanted) -> void** {
    for (unsigned i = 0; i < count_; ++i) {
      if (options_[i] == wanted) return &values_[i];
    }
    return nullptr;
  };
  void** const error_size = find(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  void** const error_buffer = find(CU_JIT_ERROR_LOG_BUFFER);
  if (error_size != nullptr && error_buffer != nullptr) Fill(*error_buffer, error_size, text);
  void** const info_size = find(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  void** const info_buffer = find(CU_JIT_INFO_LOG_BUFFER);
  if (info_size != nullptr && info_buffer != nullptr) Fill(*info_buffer, info_size, "");
}

}  // namespace gpuloom::softgpu
