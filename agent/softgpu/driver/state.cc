// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/state.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <string>
#include <system_error>
#include <thread>

#include "agent/softgpu/driver/device.h"
#include "agent/softgpu/exec/machine/crew.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// kForked is a child of a process that was ready.
enum class Phase { kNew, kReady, kForked, kUnloading };

std::atomic<Phase> phase{Phase::kNew};
std::atomic<CUresult> fault{CUDA_SUCCESS};
std::atomic<bool> stopping{false};
thread_local int host_function_depth = 0;

Settings& MutableSettings() {
  static auto* settings =
      new Settings;  // never destroyed: stream threads may outlive static destructors
  return *settings;
}

// The child has one thread: nothing needs ordering.
void AfterForkInChild() { phase.store(Phase::kForked, std::memory_order_relaxed); }

// Runs when the process exits: ends kernels that still run, and makes late calls return an error.
[[gnu::destructor]] void AtUnload() {
  if (phase.load() == Phase::kNew) return;
  phase.store(Phase::kUnloading);
  stopping.store(true);
}

// NVIDIA's driver does this when it starts, and fails if it is not allowed to (seen with 570 and
// 580).
bool NamesItsThread() {
  std::promise<void> done;
  std::promise<pid_t> number;
  std::thread thread;
  try {
    thread = std::thread([&] {
      number.set_value(gettid());
      done.get_future().wait();
    });
  } catch (const std::system_error&) {
    return false;
  }
  const std::string path = "/proc/self/task/" + std::to_string(number.get_future().get()) + "/comm";
  std::FILE* const name = std::fopen(path.c_str(), "w");
  const bool named = name != nullptr && std::fputs("softgpu-start", name) >= 0;
  if (name != nullptr) std::fclose(name);
  done.set_value();
  thread.join();
  return named;
}

// softgpu keeps all exportable memory in memfds; a sandbox that forbids them would only show at the
// first cuMemCreate.
bool MakesMemory() {
  const int memory = memfd_create("softgpu", MFD_CLOEXEC);
  if (memory >= 0) close(memory);
  return memory >= 0;
}

// NVIDIA's driver exchanges memory through such a socket. This one only keeps it open until the
// process ends, also when cuInit fails later and is tried again.
bool ListensForOtherProcesses() {
  static bool listens = false;
  if (listens) return true;
  const sockaddr_un any{AF_UNIX, ""};  // of no name: the kernel finds an abstract one
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made < 0) return false;
  listens = bind(made, reinterpret_cast<const sockaddr*>(&any), sizeof(any.sun_family)) == 0 &&
            listen(made, 1) == 0;
  if (!listens) close(made);
  return listens;
}

// NVIDIA's driver also looks for MPS and for links to its device nodes, but works without them.
void LooksForWhatIsNotThere() {
  const int asks = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un nobody{AF_UNIX, "/tmp/softgpu-mps/control"};
  if (asks >= 0) {
    static_cast<void>(connect(asks, reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody)));
    close(asks);
  }
  static_cast<void>(symlink("../softgpu", "/dev/char/softgpu/0"));
}

// What NVIDIA's driver needs from the system and this process is denied, as a verb; nullptr when
// all of it is allowed. A sandbox that is too tight for the real driver shows here, without a GPU.
const char* WhatItMayNot() {
  if (!NamesItsThread()) return "make threads and name them";
  if (!MakesMemory()) return "make memory with a descriptor";
  if (!ListensForOtherProcesses()) return "listen on a Unix socket";
  LooksForWhatIsNotThere();
  return nullptr;
}

Mutex start_mutex;

}  // namespace

CUresult Start(unsigned flags) GPULOOM_EXCLUDES(start_mutex) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // Judged before the lock: a forked child may have inherited it locked.
  if (phase.load() == Phase::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  if (phase.load() == Phase::kUnloading) return CUDA_ERROR_DEINITIALIZED;
  const MutexLock lock(start_mutex);
  if (phase.load() == Phase::kReady) return CUDA_SUCCESS;
  Settings settings;
  std::string error;
  if (!ReadSettings(settings, error)) {
    PrintLine(error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  MutableSettings() = settings;
  if (const char* what = WhatItMayNot(); what != nullptr) {
    PrintLine(std::string("the process may not ") + what);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  MakeDevices(settings);
  if (DeviceCount() == 0) return CUDA_ERROR_NO_DEVICE;
  Crew::Instance().SetSize(static_cast<uint32_t>(settings.threads));
  // Only once everything is there: a child of a process that had not come so far has no driver
  // state to lose, and may initialize by itself.
  pthread_atfork(nullptr, nullptr, AfterForkInChild);
  phase.store(Phase::kReady);
  return CUDA_SUCCESS;
}

CUresult Ready() {
  switch (phase.load(std::memory_order_acquire)) {
    case Phase::kReady:
      return host_function_depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
    case Phase::kUnloading:
      return CUDA_ERROR_DEINITIALIZED;
    case Phase::kNew:
    case Phase::kForked:
      break;
  }
  return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult Healthy() {
  const CUresult ready = Ready();
  return ready != CUDA_SUCCESS ? ready : Fault();
}

const Settings& CurrentSettings() { return MutableSettings(); }

CUresult Fault() { return fault.load(std::memory_order_acquire); }

// If there are several faults at once, the first is kept, and only that one is printed. It also
// stops all running kernels: their results no longer matter.
void RecordFault(CUresult code, std::string_view reason) {
  CUresult none = CUDA_SUCCESS;
  if (!fault.compare_exchange_strong(none, code)) return;
  stopping.store(true);
  PrintLine(reason);
}

void RecordMemoryLost(std::string_view what, uint64_t address, uint64_t size_bytes) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "%.*s found %llu bytes at 0x%llx freed or inaccessible; was it freed too early?",
                static_cast<int>(what.size()), what.data(),
                static_cast<unsigned long long>(size_bytes),
                static_cast<unsigned long long>(address));
  RecordFault(CUDA_ERROR_ILLEGAL_ADDRESS, text);
}

void PrintLine(std::string_view line) {
  if (CurrentSettings().quiet) return;
  const std::string text = "softgpu: " + std::string(line) + "\n";
  // One write, so that lines of several processes do not mix; nothing can be done when stderr is
  // closed.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

const std::atomic<bool>& Stopping() { return stopping; }

InsideHostFunction::InsideHostFunction() { ++host_function_depth; }
InsideHostFunction::~InsideHostFunction() { --host_function_depth; }

}  // namespace gpuloom::softgpu
