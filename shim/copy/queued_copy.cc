// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/queued_copy.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/copy/staging.h"
#include "shim/process/futex.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

struct QueuedCopies {
  Lock lock;
  wire::StreamId stream GPULOOM_GUARDED_BY(lock){0};
  // The epoch of the context in which the stream was made.
  uint32_t epoch GPULOOM_GUARDED_BY(lock) = 0;
  bool prepared GPULOOM_GUARDED_BY(lock) = false;
};
constinit QueuedCopies copies;

// The stream waits for no other, as the program's are held until the copy is done.
CUresult FindOwnStream(wire::StreamId* stream) {
  Holding holding(&copies.lock);
  if (!copies.prepared || copies.epoch != ContextEpoch()) {
    CUDA_RETURN_IF_ERROR(StartHostFunctions());
    // Later the thread could not report that there is no memory for it. Callers may have some of their own.
    const CUresult result = MakeStagingForQueuedCopies();
    if (result != CUDA_SUCCESS) {
      return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_NOT_SUPPORTED : result;
    }
    CUDA_RETURN_IF_ERROR(MakeOwnStream(CU_STREAM_NON_BLOCKING, &copies.stream));
    copies.epoch = ContextEpoch();
    copies.prepared = true;
  }
  *stream = copies.stream;
  return CUDA_SUCCESS;
}

void Run(void* allocated) {
  auto* copy = static_cast<QueuedCopy*>(allocated);
  copy->run(*copy);
  free(copy);
}

}  // namespace

CUresult PrepareQueuedCopies() {
  wire::StreamId stream;
  return FindOwnStream(&stream);
}

CUresult PostQueuedCopy(wire::StreamId stream, QueuedCopy copy) {
  CUDA_RETURN_IF_ERROR(FindOwnStream(&copy.on));
  // The copy outlives the call. If the session ends before it runs, this memory is lost with it.
  auto* kept = static_cast<QueuedCopy*>(malloc(sizeof(QueuedCopy)));
  if (kept == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *kept = copy;
  KeptHostFunction function;
  function.function = &Run;
  function.data = kept;
  const CUresult result = PostHostFunction(stream, function);
  if (result != CUDA_SUCCESS) free(kept);
  return result;
}

}  // namespace gpuloom
