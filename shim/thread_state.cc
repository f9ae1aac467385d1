#include "shim/thread_state.h"

#include <stdlib.h>

#include "shim/stream.h"

// The C library's (2.18) registration of a thread's destructors; it also keeps this library loaded
// until they have run.
extern "C" int __cxa_thread_atexit_impl(void (*function)(void*), void* object, void* library);
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace gpuloom {
namespace {

__thread ThreadState state;

void OnThreadExit(void*) {
  ReleaseThreadStream(&state);
  free(state.below);
  state.below = nullptr;
  state.below_count = state.below_capacity = 0;
}

}  // namespace

ThreadState& CurrentThread() { return state; }

void HookThreadExit() {
  if (state.exit_hooked) return;
  state.exit_hooked = true;
  __cxa_thread_atexit_impl(&OnThreadExit, nullptr, &__dso_handle);
}

}  // namespace gpuloom
