// SPDX-License-Identifier: Apache-2.0
// cuLink*: several PTX texts become one, which loads like any other. Machine code, object files and
// archives are nothing that softgpu could link.
#include "agent/softgpu/ptx/link.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/jit_log.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "agent/softgpu/ptx/image.h"
#include "agent/softgpu/ptx/parser.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/mutex.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Inputs are checked when they are added, so that a wrong one fails at its own call, and joined
// when the link is completed.
struct LinkState {
  explicit LinkState(JitLog told) : log(told) {}
  const JitLog log;      // the program's buffers stay until the state is destroyed
  gpuloom::Mutex mutex;  // guards the rest
  std::vector<std::string> texts GPULOOM_GUARDED_BY(mutex);
  std::string linked GPULOOM_GUARDED_BY(mutex);
};

CUresult Require(CUlinkState handle, std::shared_ptr<LinkState>& state) {
  CUDA_RETURN_IF_ERROR(Healthy());
  state = Registry<LinkState>::Instance().Find(handle);
  return state == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Fail(const LinkState& state, std::string_view why, CUresult result) {
  state.log.WriteError(why);
  return result;
}

CUresult Add(LinkState& state, CUjitInputType type, std::span<const std::byte> data) {
  std::string text;
  std::string error;
  switch (type) {
    case CU_JIT_INPUT_PTX: {
      // Up to the first NUL: programs pass the text with its end or without.
      const auto* begin = reinterpret_cast<const char*>(data.data());
      text.assign(begin, strnlen(begin, data.size()));
      ptx::ModuleTree tree;
      if (ptx::Extract(data, PlayedTarget(), &error).empty()) {
        return Fail(state, error, CUDA_ERROR_INVALID_IMAGE);
      }
      if (!ptx::Parse(text, &tree, &error)) return Fail(state, error, CUDA_ERROR_INVALID_PTX);
      break;
    }
    case CU_JIT_INPUT_FATBINARY:
      text = ptx::Extract(data, PlayedTarget(), &error);
      // NVIDIA's device runtime is machine code, and part of every program of linked device code. A
      // program that calls it gets an error when the linked image is loaded.
      if (text.empty() && ptx::HoldsMachineCode(data, PlayedTarget())) return CUDA_SUCCESS;
      if (text.empty()) return Fail(state, error, CUDA_ERROR_NO_BINARY_FOR_GPU);
      break;
    case CU_JIT_INPUT_CUBIN:
      text = ptx::Extract(data, PlayedTarget(), &error);  // what cuLinkComplete gave is PTX
      if (text.empty()) {
        return Fail(state, error,
                    error.starts_with(ptx::kOnlyMachineCode) ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                             : CUDA_ERROR_INVALID_IMAGE);
      }
      break;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
      return Fail(state, "softgpu links PTX only, no object files and archives",
                  CUDA_ERROR_NOT_SUPPORTED);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const gpuloom::MutexLock lock(state.mutex);
  state.texts.push_back(std::move(text));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values,
                         CUlinkState* handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const JitLog log(count, options, values);
  CUDA_RETURN_IF_ERROR(log.Judge());
  auto state = std::make_shared<LinkState>(log);
  *handle = reinterpret_cast<CUlinkState>(state.get());
  Registry<LinkState>::Instance().Add(std::move(state));
  return CUDA_SUCCESS;
}
CUresult cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* handle) {
  return cuLinkCreate_v2(count, options, values, handle);
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size_bytes,
                          const char*, unsigned count, CUjit_option* options, void** values) {
  std::shared_ptr<LinkState> state;
  CUDA_RETURN_IF_ERROR(Require(handle, state));
  CUDA_RETURN_IF_ERROR(JitLog(count, options, values).Judge());
  if (data == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return Add(*state, type, {static_cast<const std::byte*>(data), size_bytes});
}
CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size_bytes,
                       const char* name, unsigned count, CUjit_option* options, void** values) {
  return cuLinkAddData_v2(handle, type, data, size_bytes, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned,
                          CUjit_option*, void**) {
  std::shared_ptr<LinkState> state;
  CUDA_RETURN_IF_ERROR(Require(handle, state));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> content;
  if (!ReadFile(path, content)) return CUDA_ERROR_FILE_NOT_FOUND;
  // ReadFile puts a NUL behind the content.
  return Add(*state, type, std::as_bytes(std::span(content.data(), content.size() - 1)));
}
CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path, unsigned count,
                       CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* size_bytes) {
  std::shared_ptr<LinkState> state;
  CUDA_RETURN_IF_ERROR(Require(handle, state));
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpuloom::MutexLock lock(state->mutex);
  // Completed again it gives the same image: the address that the program has must stay good.
  if (state->linked.empty()) state->linked = ptx::Link(state->texts);
  std::string error;
  ptx::ModuleTree tree;
  if (!ptx::Parse(state->linked, &tree, &error)) {
    return Fail(*state, error, CUDA_ERROR_INVALID_PTX);
  }
  std::vector<std::string> entries;
  for (const ptx::FunctionTree& function : tree.functions) {
    if (function.is_entry) entries.emplace_back(function.name);
  }
  state->log.WriteSuccess(entries);
  *image = state->linked.data();
  // With the NUL behind it, because the image is PTX text.
  if (size_bytes != nullptr) *size_bytes = state->linked.size() + 1;
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  return Registry<LinkState>::Instance().Take(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                                 : CUDA_SUCCESS;
}

}  // extern "C"
