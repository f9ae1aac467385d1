// SPDX-License-Identifier: Apache-2.0
#include "shim/process/thread_state.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/process/futex.h"
#include "shim/process/oldest_glibc.h"
#include "shim/stream/stream.h"

// Not __cxa_thread_atexit_impl, which is of glibc 2.18: a library that asks for it starts no program
// of a container with an older one.
extern "C" {
__attribute__((weak)) int OldPthreadKeyCreate(pthread_key_t*, void (*)(void*));
__attribute__((weak)) int OldPthreadSetSpecific(pthread_key_t, const void*);
}
__asm__(".symver OldPthreadKeyCreate, pthread_key_create@" GPULOOM_OLDEST_GLIBC);
__asm__(".symver OldPthreadSetSpecific, pthread_setspecific@" GPULOOM_OLDEST_GLIBC);

namespace gpuloom {
namespace {

__thread ThreadState state;

void OnThreadExit(void*) {
  ReleaseThreadStream(&state);
  free(state.below);
  state.below = nullptr;
  state.below_count = state.below_capacity = 0;
  state.exit_hooked = false;  // another destructor of the thread's may still use CUDA
}

// Its values only say that a thread's end is to be told. Never deleted, as this library is never
// unloaded.
struct ExitKey {
  Lock lock;
  bool is_made = false;
  pthread_key_t key = 0;
};
constinit ExitKey exit_key;

bool MakeExitKey() {
  Holding holding(&exit_key.lock);
  if (!exit_key.is_made) {
    exit_key.is_made = OldPthreadKeyCreate(&exit_key.key, &OnThreadExit) == 0;
  }
  return exit_key.is_made;
}

}  // namespace

ThreadState& CurrentThread() { return state; }

void HookThreadExit() {
  if (state.exit_hooked) return;
  state.exit_hooked = true;
  // Without them, the program has only its first thread, which ends with the process.
  if (OldPthreadKeyCreate == nullptr || OldPthreadSetSpecific == nullptr) return;
  if (MakeExitKey()) OldPthreadSetSpecific(exit_key.key, &state);
}

}  // namespace gpuloom
