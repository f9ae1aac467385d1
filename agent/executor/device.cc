#include "agent/executor/device.h"

namespace gpuloom::executor {

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

bool Device::Start(int ordinal, std::string* error) {
  const auto check = [&](CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return true;
    *error = std::string("cuda: ") + call + " on device " + std::to_string(ordinal) + ": " +
             NameOf(result);
    return false;
  };
  return check(cuda_.cuInit(0), "cuInit") &&
         check(cuda_.cuDeviceGet(&device_, ordinal), "cuDeviceGet") &&
         check(cuda_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain") &&
         check(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

void Device::MakeCurrent() const { cuda_.cuCtxSetCurrent(context_); }

CUresult Device::Judge(CUresult result) {
  if (result != CUDA_SUCCESS && IsSticky(result)) {
    CUresult expected = CUDA_SUCCESS;
    lost_.compare_exchange_strong(expected, result, std::memory_order_release,
                                  std::memory_order_relaxed);
  }
  return result;
}

CUresult Device::TakeStream(int priority, CUstream* stream) {
  std::vector<CUstream>& idle = idle_streams_[priority];
  if (!idle.empty()) {
    *stream = idle.back();
    idle.pop_back();
    return CUDA_SUCCESS;
  }
  return Judge(cuda_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, priority));
}

void Device::GiveStream(int priority, CUstream stream) {
  idle_streams_[priority].push_back(stream);
}

CUresult Device::TakeEvent(bool timing, CUevent* event) {
  std::vector<CUevent>& idle = idle_events_[timing];
  if (!idle.empty()) {
    *event = idle.back();
    idle.pop_back();
    return CUDA_SUCCESS;
  }
  return Judge(cuda_.cuEventCreate(event, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
}

void Device::GiveEvent(bool timing, CUevent event) { idle_events_[timing].push_back(event); }

const char* Device::NameOf(CUresult result) const {
  const char* name = nullptr;
  if (cuda_.cuGetErrorName == nullptr || cuda_.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr) {
    return "an unknown CUDA error";
  }
  return name;
}

}  // namespace gpuloom::executor
