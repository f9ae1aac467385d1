// SPDX-License-Identifier: Apache-2.0
// The executor's own stream, for clearing memory before a tenant gets it and for looking at words of
// device memory, and the callbacks that wait for it. Ring thread only.
#pragma once

#include <deque>
#include <functional>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/device.h"
#include "agent/executor/memory/device_space.h"

namespace gpuloom::executor {

class InternalStream {
 public:
  explicit InternalStream(Device* device) : device_(device) {}

  // False with a message when the stream cannot be made.
  [[nodiscard]] bool Start(std::string* error);

  // Addresses that no tenant knows, for clearing memory there. 0 when there are none left.
  uint64_t TakeHidden(uint64_t size_bytes) { return hidden_.Take(size_bytes); }
  void GiveHidden(uint64_t address, uint64_t size_bytes) { hidden_.Give(address, size_bytes); }

  // Writes zeros; `done` runs in Poll with what came of it.
  void Clear(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done);

  // Copies up to 8 bytes out; `done` runs in Poll, and says whether the word is of use to anybody: a
  // look at one that has not changed is no reason to stay awake.
  using OnWord = std::function<bool(CUresult, uint64_t word)>;
  void Read(uint64_t address, uint32_t size_bytes, Staging* staging, OnWord done);

  // Writes a word of 4 or 8 bytes, of device memory or of pinned host memory; `done` runs in Poll.
  void Write(uint64_t address, uint32_t size_bytes, uint64_t value,
             std::function<void(CUresult)> done);
  // For words: a full queue of the driver's, of about 1,000, would block the thread.
  bool HasRoom() const { return waiting_.size() < 256; }

  // True when something finished that was not in vain.
  bool Poll();
  bool Idle() const { return waiting_.empty(); }

 private:
  struct Waiting {
    CUevent event;  // null: failed with `result`
    CUresult result;
    std::function<bool(CUresult)> done;
  };
  void Queue(CUevent event, CUresult result, std::function<bool(CUresult)> done);

  Device* device_;
  CUstream stream_ = nullptr;
  FreeAddresses hidden_;
  std::deque<Waiting> waiting_;
};

}  // namespace gpuloom::executor
