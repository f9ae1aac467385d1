// SPDX-License-Identifier: Apache-2.0
// The executor's own stream, for clearing memory before a tenant gets it and for reading words of
// device memory, and the callbacks that wait for it. Owned by the loop; ring thread only.
#pragma once

#include <deque>
#include <functional>

#include "agent/executor/memory/device_space.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/memory_operation_commands.h"

namespace gpuloom::executor {

class Device;
class Staging;

class InternalStream {
 public:
  explicit InternalStream(Device* device) : device_(device) {}

  // Returns false with a message if the stream cannot be created.
  [[nodiscard]] bool Start(std::string* error);

  CUstream stream() const { return stream_; }

  // Addresses unknown to tenants, for clearing memory there. Returns 0 if none are left.
  uint64_t TakeHidden(uint64_t size_bytes) { return hidden_.Take(size_bytes); }
  void GiveHidden(uint64_t address, uint64_t size_bytes) { hidden_.Give(address, size_bytes); }

  // Writes zeros; `done` runs in Poll with the result.
  void Clear(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done);

  // Copies up to 8 bytes out; `done` runs in Poll and returns whether the word was useful: reading
  // a word that has not changed is no reason for the loop to stay awake.
  using OnWord = std::function<bool(CUresult, uint64_t word)>;
  void Read(uint64_t address, uint32_t size_bytes, Staging* staging, OnWord done);

  // Writes a 4- or 8-byte word in device memory or pinned host memory; `done` runs in Poll.
  void Write(const wire::StreamWriteValue::Request& write, std::function<void(CUresult)> done);
  // For Read and Write: a full driver queue (about 1,000 entries) would block this thread.
  bool HasRoom() const { return waiting_.size() < 256; }

  // Returns true if something useful finished (see OnWord).
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
