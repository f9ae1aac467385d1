// The one real context, as tenants may change it.
#include "agent/executor/session.h"

namespace gpuloom::executor {
namespace {

// What a tenant may have at most: this memory is the context's own and is charged to nobody, so the
// bounds keep it in the order of what a context takes anyhow.
uint64_t BoundOf(uint32_t limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return 16u << 10;  // for every thread that the device can hold, when a kernel needs it
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

}  // namespace

void Session::On(wire::Tag<wire::ContextSetLimit>, const wire::ContextSetLimit::Request& request,
                 const wire::Record& record) {
  const uint64_t bound = BoundOf(request.limit);
  if (bound == 0) return Refuse(wire::Fatal::kBadArgument);
  const Asker asker = AskerOf(record);
  if (request.value > bound) {
    return Reply<wire::ContextSetLimit>(asker, request.limit == CU_LIMIT_STACK_SIZE
                                                   ? CUDA_ERROR_INVALID_VALUE
                                                   : CUDA_ERROR_OUT_OF_MEMORY);
  }
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  ++outstanding_;
  place_.quiet->Need(
      this,
      [result, request, &cuda = place_.device->cuda()] {
        const auto limit = static_cast<CUlimit>(request.limit);
        size_t have = 0;
        *result = cuda.cuCtxGetLimit(&have, limit);
        if (*result == CUDA_SUCCESS && have < request.value) {
          *result = cuda.cuCtxSetLimit(limit, request.value);
        }
      },
      [this, result, asker] {
        --outstanding_;
        Reply<wire::ContextSetLimit>(asker, place_.device->Judge(*result));
      });
}

}  // namespace gpuloom::executor
