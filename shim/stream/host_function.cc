// SPDX-License-Identifier: Apache-2.0
#include "shim/stream/host_function.h"

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/graph/capture.h"
#include "shim/memory/migration.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"
#include "shim/process/thread.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

struct Entry {
  KeptHostFunction kept;
  uint64_t id;  // 0: free
};

struct HostFunctions {
  Lock lock;
  // The lower half of an id is its place here, counted from 1.
  Growing<Entry> entries GPULOOM_GUARDED_BY(lock);
  Growing<uint32_t> free GPULOOM_GUARDED_BY(lock);    // places
  uint32_t last_serial GPULOOM_GUARDED_BY(lock) = 0;  // an id's upper half
  bool started GPULOOM_GUARDED_BY(lock) = false;

  std::atomic<uint32_t> expected{0};  // runs asked for since the beginning, wrapping around
  std::atomic<uint32_t> returned{0};  // how many of them have returned
};
constinit HostFunctions functions;

__thread bool inside = false;

// Finds a function by an id, which comes from the executor and may be any number. One that does not
// stay is forgotten; `also_what_stays`: the others, too.
bool TakeById(uint64_t id, KeptHostFunction* kept, bool also_what_stays) {
  Holding holding(&functions.lock);
  const uint32_t place = static_cast<uint32_t>(id) - 1;
  if (place >= functions.entries.count() || functions.entries[place].id != id) return false;
  Entry& entry = functions.entries[place];
  *kept = entry.kept;
  if (entry.kept.stays && !also_what_stays) return true;
  entry.id = 0;
  (void)functions.free.Push(place);  // without memory the place is lost, which costs little
  return true;
}

// Called without any lock, because the function is the program's and may take as long as it likes.
void Call(const KeptHostFunction& kept, CUresult status) {
  inside = true;
  if (kept.callback != nullptr) {
    kept.callback(kept.stream, status, kept.data);
  } else if (status == CUDA_SUCCESS) {
    kept.function(kept.data);
  }
  inside = false;
}

// When the session is lost: calls the remaining callbacks with the error, in the order in which
// they were added.
void FailCallbacks(CUresult status) {
  for (;;) {
    uint64_t oldest = 0;
    {
      Holding holding(&functions.lock);
      for (const Entry& entry : functions.entries) {
        if (entry.id != 0 && entry.kept.callback != nullptr && !entry.kept.stays &&
            (oldest == 0 || entry.id >> 32 < oldest >> 32)) {
          oldest = entry.id;
        }
      }
    }
    KeptHostFunction kept;
    if (oldest == 0) return;
    if (TakeById(oldest, &kept, false)) Call(kept, status);
  }
}

// Our thread. `done` counts runs from the beginning, as the executor does; both wrap around. The
// functions run one by one, in the order in which the executor asks for them.
void RunFunctions() {
  for (uint32_t done = 0;;) {
    const uint32_t expected = functions.expected.load(std::memory_order_acquire);
    if (expected == done) {
      FutexWait(&functions.expected, expected);
      continue;
    }
    uint64_t id = 0;
    const CUresult result = session.WaitForHostFunction(done, &id);
    if (result != CUDA_SUCCESS) {
      FailCallbacks(result);
      return;
    }
    KeptHostFunction kept;
    // A function that was forgotten meanwhile is skipped, and still reported as done: a stream
    // waits for that.
    if (TakeById(id, &kept, false)) Call(kept, CUDA_SUCCESS);
    functions.returned.store(++done, std::memory_order_release);
    session.HostFunctionsDone(done);
  }
}

CUresult Post(CUstream handle, KeptHostFunction kept, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(session.Check());
  if (kept.function == nullptr && kept.callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(NeedContext());
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (kept.callback != nullptr) {
    CUDA_RETURN_IF_ERROR(RefuseInCapture(stream));
  } else {
    CUresult captured;
    if (Records(stream, &captured, [&](graph::NodeParams* node) {
          *node = graph::HostCall(kept.function, kept.data);
          return CUDA_SUCCESS;
        })) {
      return captured;
    }
  }
  // From here until the function is in the ring: see migration.h.
  const WaitForProgram waits;
  CUDA_RETURN_IF_ERROR(waits.result());
  kept.stream = handle;
  return PostHostFunction(stream, kept);
}

}  // namespace

uint64_t KeepHostFunction(const KeptHostFunction& function) {
  Holding holding(&functions.lock);
  uint32_t place;
  if (functions.free.count() != 0) {
    place = functions.free[functions.free.count() - 1];
    functions.free.Remove(functions.free.count() - 1);
  } else {
    place = static_cast<uint32_t>(functions.entries.count());
    if (!functions.entries.Push({})) return 0;
  }
  const uint64_t id = uint64_t{++functions.last_serial} << 32 | (place + 1);
  functions.entries[place] = {function, id};
  return id;
}

void ForgetHostFunction(uint64_t id) {
  KeptHostFunction kept;
  (void)TakeById(id, &kept, true);
}

// Expected before it is posted, because the executor may ask at once.
CUresult PostHostFunction(wire::StreamId stream, const KeptHostFunction& function) {
  const uint64_t id = KeepHostFunction(function);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = ExpectHostFunctions(1);
  if (result == CUDA_SUCCESS) {
    result = session.PostOnStream<wire::HostFunction>(
        stream, 0, [&](wire::HostFunction::Request& request, uint8_t*) {
          request = {id, stream, 0};
        });
    if (result != CUDA_SUCCESS) UnexpectHostFunctions(1);
  }
  if (result != CUDA_SUCCESS) ForgetHostFunction(id);
  return result;
}

CUresult StartHostFunctions() {
  Holding holding(&functions.lock);
  if (!functions.started) {
    functions.started = StartThread("gpuloom-host-fn", "host functions", &RunFunctions);
  }
  return functions.started ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult ExpectHostFunctions(uint32_t runs) {
  CUDA_RETURN_IF_ERROR(StartHostFunctions());
  functions.expected.fetch_add(runs, std::memory_order_acq_rel);
  FutexWake(&functions.expected, 1);
  return CUDA_SUCCESS;
}

void UnexpectHostFunctions(uint32_t runs) {
  functions.expected.fetch_sub(runs, std::memory_order_acq_rel);
  FutexWake(&functions.expected, 1);
}

bool HostFunctionsPending() {
  return functions.returned.load(std::memory_order_acquire) !=
         functions.expected.load(std::memory_order_acquire);
}

bool InsideHostFunction() { return inside; }

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data,
                               DefaultStream null_means) {
  KeptHostFunction kept;
  kept.function = function;
  kept.data = data;
  return Post(handle, kept, null_means);
}

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                                  unsigned flags, DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  KeptHostFunction kept;
  kept.callback = callback;
  kept.data = data;
  return Post(handle, kept, null_means);
}
