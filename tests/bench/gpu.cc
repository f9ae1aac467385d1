// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/gpu.h"

#include "tests/bench/report.h"

namespace gpuloom::bench {

bool Gpu::Start(const std::string& library) {
  if (!Load(library.c_str(), &cu_, &error_)) return false;
  CUmodule module = nullptr;
  const bool good =
      Ok(cu_.cuInit(0), "cuInit") && Ok(cu_.cuDeviceGet(&device_, 0), "cuDeviceGet") &&
      Ok(cu_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain") &&
      Ok(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent") &&
      Ok(cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate") &&
      Ok(cu_.cuModuleLoadData(&module, Kernels().c_str()), "cuModuleLoadData") &&
      Ok(cu_.cuModuleGetFunction(&nothing_, module, "nothing"), "cuModuleGetFunction") &&
      Ok(cu_.cuModuleGetFunction(&count_, module, "count"), "cuModuleGetFunction") &&
      Ok(cu_.cuModuleGetFunction(&fill_, module, "fill"), "cuModuleGetFunction");
  for (int i = 0; i < kNothings && !failed(); ++i) {
    Ok(cu_.cuModuleGetFunction(&nothings_[i], module, ("nothing_" + std::to_string(i)).c_str()),
       "cuModuleGetFunction");
  }
  return good && !failed();
}

bool Gpu::Ok(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return true;
  const char* name = nullptr;
  if (cu_.cuGetErrorName == nullptr || cu_.cuGetErrorName(result, &name) != CUDA_SUCCESS) {
    name = "an unknown error";
  }
  return Wrong(std::string(call) + ": " + name + " (" + std::to_string(result) + ")");
}

bool Gpu::Wrong(const std::string& what) {
  if (error_.empty()) error_ = what;
  return false;
}

std::string Gpu::TakeError() {
  std::string error;
  error.swap(error_);
  return error;
}

std::string Gpu::Describe() {
  char name[256] = "";
  int version = 0;
  size_t memory_bytes = 0;
  if (!Ok(cu_.cuDeviceGetName(name, sizeof(name), device_), "cuDeviceGetName") ||
      !Ok(cu_.cuDriverGetVersion(&version), "cuDriverGetVersion") ||
      !Ok(cu_.cuDeviceTotalMem_v2(&memory_bytes, device_), "cuDeviceTotalMem")) {
    return "";
  }
  return "\"device\":" + Quoted(name) + ",\"driver_version\":" + std::to_string(version) +
         ",\"memory_bytes\":" + std::to_string(memory_bytes);
}

}  // namespace gpuloom::bench
