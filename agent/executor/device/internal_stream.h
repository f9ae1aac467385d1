// SPDX-License-Identifier: Apache-2.0
// The executor's own streams, for clearing memory before a tenant gets it and for words of device
// memory, and the callbacks that wait for them. Owned by the loop; ring thread only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>

#include "agent/executor/memory/device_space.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/memory_operation_commands.h"

namespace gpuloom::executor {

class Device;
class Staging;

class InternalStream {
 public:
  explicit InternalStream(Device* device) : device_(device) {}

  // `on_stream` is called with each stream that is made, now and later. Returns false with a message if there is none.
  [[nodiscard]] bool Start(std::function<void(CUstream)> on_stream, std::string* error);

  // Addresses unknown to tenants, for clearing memory there. Returns 0 if none are left.
  uint64_t TakeHidden(uint64_t size_bytes) { return hidden_.Take(size_bytes); }
  void GiveHidden(uint64_t address, uint64_t size_bytes) { hidden_.Give(address, size_bytes); }

  // Writes zeros, in the order of the calls with the same `priority` (CUDA's); `done` runs in Poll with the result. Only
  // while there is room, for a session that has `mine` there: there is for its first, whatever others have.
  bool HasRoomToClear(int priority, uint32_t mine) const;
  void Clear(uint64_t address, uint64_t size_bytes, int priority,
             std::function<void(CUresult)> done);

  // Copies up to 8 bytes out; `done` runs in Poll and returns whether the word was useful: reading
  // a word that has not changed is no reason for the loop to stay awake.
  using OnWord = std::function<bool(CUresult, uint64_t word)>;
  void Read(uint64_t address, uint32_t size_bytes, Staging* staging, OnWord done);

  // Writes a 4- or 8-byte word in device memory or pinned host memory; `done` runs in Poll.
  void Write(const wire::StreamWriteValue::Request& write, std::function<void(CUresult)> done);
  // For Read and Write: a full driver queue (about 1,000 entries) would block this thread, and so would an event that is
  // not there.
  static constexpr size_t kWordsAtOnce = 256;
  static constexpr size_t kClearsAtOnce =
      64;  // of one priority; of sessions' first ones four times as many
  bool HasRoom() const;

  // Where a worker clears an array and waits for it. Made at first use.
  [[nodiscard]] CUresult ForArrays(CUstream* stream);

  // Returns true if something useful finished (see OnWord).
  bool Poll();
  bool Idle() const;

 private:
  struct Waiting {
    CUevent event;  // null: failed with `result`
    CUresult result;
    std::function<bool(CUresult)> done;
  };
  struct Line {
    CUstream stream = nullptr;
    std::deque<Waiting> waiting;
  };
  CUresult MakeStream(int priority, Line* line);
  // Made at first use. Without a stream of its own priority memory is cleared among the words.
  Line* LineOf(int priority);
  void Queue(Line* line, CUevent event, CUresult result, std::function<bool(CUresult)> done);
  bool Poll(Line* line);

  Device* device_;
  std::function<void(CUstream)> on_stream_;
  FreeAddresses hidden_;
  Line words_;                  // a tenant waits for this short work: the greatest priority
  std::map<int, Line> clears_;  // by priority, one for each class of tenants
  Line arrays_;                 // nothing waits there
};

}  // namespace gpuloom::executor
