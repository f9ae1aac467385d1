// SPDX-License-Identifier: Apache-2.0
#include "shim/process/thread_state.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/process/futex.h"
#include "shim/process/oldest_glibc.h"
#include "shim/stream/stream.h"

// Not __cxa_thread_atexit_impl, which is of glibc 2.18: a library that asks for it starts no
// program of a container with an older one.
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

// A thread has a value for it only so that OnThreadExit is called. Never deleted, as this library
// is never unloaded.
struct ExitKey {
  Lock lock;
  bool is_made GPULOOM_GUARDED_BY(lock) = false;
  pthread_key_t key GPULOOM_GUARDED_BY(lock) = 0;
};
constinit ExitKey exit_key;

bool MakeExitKey(pthread_key_t* key) {
  Holding holding(&exit_key.lock);
  if (!exit_key.is_made) {
    exit_key.is_made = OldPthreadKeyCreate(&exit_key.key, &OnThreadExit) == 0;
  }
  *key = exit_key.key;
  return exit_key.is_made;
}

}  // namespace

ThreadState& CurrentThread() { return state; }

void HookThreadExit() {
  if (state.exit_hooked) return;
  state.exit_hooked = true;
  // Without them, the program has only its first thread, which ends with the process.
  if (OldPthreadKeyCreate == nullptr || OldPthreadSetSpecific == nullptr) return;
  pthread_key_t key;
  if (MakeExitKey(&key)) OldPthreadSetSpecific(key, &state);
}

}  // namespace gpuloom
