// The executor's own stream, for clearing memory before a tenant gets it, and the callbacks that
// wait for it. Ring thread only.
#pragma once

#include <deque>
#include <functional>

#include "agent/executor/device.h"

namespace gpuloom::executor {

class InternalStream {
 public:
  explicit InternalStream(Device* device) : device_(device) {}

  // False with a message when the stream cannot be made.
  [[nodiscard]] bool Start(std::string* error);

  // Writes zeros; `done` runs in Poll with what came of it.
  void Clear(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done);

  // True when something finished.
  bool Poll();
  bool Idle() const { return waiting_.empty(); }

 private:
  struct Waiting {
    CUevent event;  // null: failed with `result`
    CUresult result;
    std::function<void(CUresult)> done;
  };
  Device* device_;
  CUstream stream_ = nullptr;
  std::deque<Waiting> waiting_;
};

}  // namespace gpuloom::executor
