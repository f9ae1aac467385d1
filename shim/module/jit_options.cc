// SPDX-License-Identifier: Apache-2.0
#include "shim/module/jit_options.h"

#include <string.h>

namespace gpuloom {
namespace {

// CUDA passes numbers in the pointers themselves.
uint32_t NumberOf(void* const* value) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*value));
}

// Writes a 32-bit float or integer into an option's value, leaving its upper half unchanged.
void SetNumber(void** value, uint32_t number) { memcpy(value, &number, sizeof(number)); }

// Ends the text with a NUL, which counts only if the text did not fit, as in the driver.
void WriteText(const JitText& to, const char* text, size_t bytes) {
  if (to.size_out == nullptr || to.text == nullptr || to.capacity_bytes == 0) return;
  const size_t room = to.capacity_bytes - 1;
  const size_t written = bytes < room ? bytes : room;
  if (written != 0) memcpy(to.text, text, written);
  to.text[written] = '\0';
  const bool is_cut = written < bytes && room != 0;
  *to.size_out = reinterpret_cast<void*>(uintptr_t{is_cut ? to.capacity_bytes : written});
}

// A buffer needs a size, and a size needs a buffer.
bool IsWhole(const JitText& text, bool has_buffer) {
  return has_buffer == (text.size_out != nullptr) &&
         (text.text != nullptr || text.capacity_bytes == 0);
}

// The program's buffer may be larger than what is worth a place in the arena.
uint32_t CapacityOf(const JitText& text) {
  if (text.text == nullptr) return 0;
  return static_cast<uint32_t>(
      text.capacity_bytes < wire::kMaxJitTextBytes ? text.capacity_bytes : wire::kMaxJitTextBytes);
}

}  // namespace

CUresult ReadJitOptions(unsigned count, const CUjit_option* options, void** values,
                        JitOptions* out) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  // Buffer and size are two options, in any order: whether both came is known at the end.
  bool has_infos = false;
  bool has_errors = false;
  for (unsigned i = 0; i < count; ++i) {
    const auto option = static_cast<uint32_t>(options[i]);
    if (option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    switch (options[i]) {
      case CU_JIT_WALL_TIME:
        out->wall_time_out = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        out->infos.text = static_cast<char*>(values[i]);
        has_infos = true;
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        out->infos.capacity_bytes = NumberOf(&values[i]);
        out->infos.size_out = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        out->errors.text = static_cast<char*>(values[i]);
        has_errors = true;
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        out->errors.capacity_bytes = NumberOf(&values[i]);
        out->errors.size_out = &values[i];
        break;
      default:
        // Options that are left out tune what the executor decides itself.
        if ((wire::kLinkOptionsKnown >> option & 1) == 0) break;
        if (out->count == wire::kMaxLinkOptions) return CUDA_ERROR_INVALID_VALUE;
        out->list[out->count++] = {option, NumberOf(&values[i])};
        if (option != CU_JIT_THREADS_PER_BLOCK) break;
        if (NumberOf(&values[i]) == 0) return CUDA_ERROR_INVALID_VALUE;  // the driver divides by it
        out->threads_out = &values[i];
    }
  }
  return IsWhole(out->infos, has_infos) && IsWhole(out->errors, has_errors)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

JitReportBuffer JitReportBuffer::For(const JitOptions& options) {
  return {0, CapacityOf(options.infos), CapacityOf(options.errors)};
}

void JitReportBuffer::Deliver(const wire::JitReport& report, const JitOptions& options) const {
  const auto* texts = reinterpret_cast<const char*>(address);
  const auto within = [](uint32_t bytes, uint32_t most) { return bytes < most ? bytes : most; };
  WriteText(options.infos, texts, within(report.info_bytes, info_capacity_bytes));
  WriteText(options.errors, texts + info_capacity_bytes,
            within(report.error_bytes, error_capacity_bytes));
  if (options.wall_time_out != nullptr) SetNumber(options.wall_time_out, report.wall_time_bits);
  if (options.threads_out != nullptr) SetNumber(options.threads_out, report.threads_per_block);
}

void WriteJitError(const JitOptions& options, const char* error, size_t bytes) {
  WriteText(options.infos, "", 0);
  WriteText(options.errors, error, bytes);
  if (options.wall_time_out != nullptr) SetNumber(options.wall_time_out, 0);
}

}  // namespace gpuloom
