// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/memory_operation.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/retirement.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/cuda/wait_value.h"

namespace gpuloom::softgpu {
namespace {

// Long enough to leave the processor to others, and short enough not to matter compared with a
// kernel.
constexpr auto kPollInterval = std::chrono::microseconds(20);

// A wait reads, a write writes: the memory must allow just that.
bool Reachable(const MemoryOperation& operation) {
  return AddressTable::Instance().Covers(operation.address, operation.wide ? 8 : 4,
                                         operation.kind == MemoryOperation::Kind::kWrite);
}

// Atomic, because another thread or process writes the word while it is looked at; the address is
// aligned (Prepare).
template <typename T>
bool PollOnce(const MemoryOperation& operation) {
  const std::atomic_ref<T> word(*reinterpret_cast<T*>(operation.address));
  return WaitIsOver(word.load(), static_cast<T>(operation.value), operation.condition);
}

template <typename T>
void Write(const MemoryOperation& operation) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(operation.address))
      .store(static_cast<T>(operation.value));
}

void RunOne(const MemoryOperation& operation) {
  if (operation.kind == MemoryOperation::Kind::kBarrier) {
    static std::atomic<int> order{0};
    order.fetch_add(1);  // orders everything around it; ThreadSanitizer knows no bare fences
    return;
  }
  // Anew in every round: the memory may be freed while the stream waits. Touching covers a single
  // look, so that a wait without end does not keep freed pages.
  while (!Stopping()) {
    {
      const Retirement::Touching touching;
      if (!Reachable(operation)) {
        return RecordMemoryLost("a stream's write or wait", operation.address,
                                operation.wide ? 8 : 4);
      }
      if (operation.kind == MemoryOperation::Kind::kWrite) {
        return operation.wide ? Write<uint64_t>(operation) : Write<uint32_t>(operation);
      }
      if (operation.wide ? PollOnce<uint64_t>(operation) : PollOnce<uint32_t>(operation)) return;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

CUresult Prepare(std::vector<MemoryOperation> operations, std::function<void()>& run) {
  // At the call, as CUDA does; RunOne looks again when it is its turn.
  for (const MemoryOperation& operation : operations) {
    if (operation.kind == MemoryOperation::Kind::kBarrier) continue;
    if (operation.address % (operation.wide ? 8 : 4) != 0 || !Reachable(operation) ||
        operation.condition > CU_STREAM_WAIT_VALUE_NOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  run = [operations = std::move(operations)] {
    for (const MemoryOperation& operation : operations) RunOne(operation);
  };
  return CUDA_SUCCESS;
}

CUresult Submit(Stream& stream, std::vector<MemoryOperation> operations) {
  Work work;
  work.on_device = true;
  CUDA_RETURN_IF_ERROR(Prepare(std::move(operations), work.run));
  stream.context.Enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace gpuloom::softgpu
