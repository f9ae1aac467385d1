// SPDX-License-Identifier: Apache-2.0
// Limits of the one real context, which all its tenants share.
#include "agent/executor/device/context_limits.h"
#include "agent/executor/device/context_memory.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/quiet.h"

namespace gpuloom::executor {
namespace {

// The highest value that a tenant may set. The memory belongs to the context; whoever raises a
// limit pays for it (context_memory.h), except for launches by kernels, for which a fresh context
// has room.
uint64_t BoundOf(uint32_t limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return 16u << 10;  // for each thread that the device can hold, once a kernel needs it
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return 16u << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return 128u << 20;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return 32u << 10;
    default:
      return 0;
  }
}

bool MayGrow(uint32_t limit) { return limit != CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT; }

ContextMemory::Kind KindOf(uint32_t limit) {
  using Kind = ContextMemory::Kind;
  if (limit == CU_LIMIT_STACK_SIZE) return Kind::kThread;
  return limit == CU_LIMIT_PRINTF_FIFO_SIZE ? Kind::kPrintf : Kind::kHeap;
}

}  // namespace

void ContextLimits::On(wire::Tag<wire::ContextSetLimit>,
                       const wire::ContextSetLimit::Request& request, const wire::Record& record) {
  const uint64_t bound = BoundOf(request.limit);
  if (bound == 0) return Refuse(wire::Fatal::kBadArgument);
  const Caller caller = CallerOf(record);
  if (request.value > bound) {
    return Reply<wire::ContextSetLimit>(caller, request.limit == CU_LIMIT_STACK_SIZE
                                                    ? CUDA_ERROR_INVALID_VALUE
                                                    : CUDA_ERROR_OUT_OF_MEMORY);
  }
  const uint64_t price =
      MayGrow(request.limit) ? services_.context->PriceOf(KindOf(request.limit), request.value) : 0;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  const auto set = [result, request, &cuda = services_.device->cuda()] {
    *result = RaiseLimit(cuda, static_cast<CUlimit>(request.limit), request.value);
  };
  Charge(price,
         [this, result, request, caller, set](CUresult charged, const DeviceChargeRef& charge) {
           if (!serving()) return;
           if (charged != CUDA_SUCCESS) return Reply<wire::ContextSetLimit>(caller, charged);
           ++outstanding_;
           services_.quiet->Need(owner(), set, [this, result, request, caller, charge] {
             --outstanding_;
             if (*result == CUDA_SUCCESS && MayGrow(request.limit)) {
               services_.context->Raise(KindOf(request.limit), request.value, charge);
             }
             Reply<wire::ContextSetLimit>(caller, services_.device->Judge(*result));
           });
         });
}

}  // namespace gpuloom::executor
