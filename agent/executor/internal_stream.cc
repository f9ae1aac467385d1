#include "agent/executor/internal_stream.h"

namespace gpuloom::executor {

bool InternalStream::Start(std::string* error) {
  const CUresult result = device_->TakeStream(0, &stream_);
  if (result == CUDA_SUCCESS) return true;
  *error = std::string("cuda: cuStreamCreateWithPriority: ") + device_->NameOf(result);
  return false;
}

void InternalStream::Clear(uint64_t address, uint64_t size_bytes,
                           std::function<void(CUresult)> done) {
  const Driver& cuda = device_->cuda();
  CUevent event = nullptr;
  CUresult result = device_->TakeEvent(false, &event);
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(cuda.cuMemsetD32Async(address, 0, size_bytes / 4, stream_));
  }
  if (result == CUDA_SUCCESS) result = device_->Judge(cuda.cuEventRecord(event, stream_));
  if (result != CUDA_SUCCESS && event != nullptr) {
    device_->GiveEvent(false, event);
    event = nullptr;
  }
  waiting_.push_back({event, result, std::move(done)});
}

bool InternalStream::Poll() {
  bool any = false;
  while (!waiting_.empty()) {
    CUresult result = waiting_.front().result;
    if (waiting_.front().event != nullptr) {
      result = device_->Judge(device_->cuda().cuEventQuery(waiting_.front().event));
      if (result == CUDA_ERROR_NOT_READY) break;
      device_->GiveEvent(false, waiting_.front().event);
    }
    const auto done = std::move(waiting_.front().done);
    waiting_.pop_front();
    done(result);
    any = true;
  }
  return any;
}

}  // namespace gpuloom::executor
