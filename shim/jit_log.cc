#include "shim/jit_log.h"

#include <stdint.h>
#include <string.h>

namespace gpuloom {

CUresult FindLogs(unsigned count, const CUjit_option* options, void** values, JitLog* errors,
                  JitLog* infos) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (static_cast<unsigned>(options[i]) >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        errors->text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        errors->capacity_bytes = reinterpret_cast<uintptr_t>(values[i]) & UINT32_MAX;
        errors->size_out = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        infos->text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        infos->capacity_bytes = reinterpret_cast<uintptr_t>(values[i]) & UINT32_MAX;
        infos->size_out = &values[i];
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
        // The others tune compilation (registers, optimisation, target, caching, line info): the
        // executor compiles with its own settings, which changes speed and not results.
        break;
    }
  }
  return CUDA_SUCCESS;
}

void WriteLog(const JitLog& log, const char* text, size_t text_bytes) {
  size_t written = 0;
  if (log.text != nullptr && log.capacity_bytes != 0) {
    written = text_bytes < log.capacity_bytes - 1 ? text_bytes : log.capacity_bytes - 1;
    if (written != 0) memcpy(log.text, text, written);
    log.text[written] = '\0';
  }
  if (log.size_out != nullptr) *log.size_out = reinterpret_cast<void*>(uintptr_t{written});
}

}  // namespace gpuloom
