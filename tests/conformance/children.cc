// SPDX-License-Identifier: Apache-2.0
// Bodies that need a process of their own: before cuInit, without a context, or with a context that
// they break for good. Each returns the number of things that were not as expected.
#include "tests/conformance/children.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"
#include "tests/conformance/large_variables.h"

namespace gpuloom::conformance {

int wrong = 0;
CUdevice device;
CUcontext context;

void Want(CUresult got, CUresult wanted, const char* what) {
  if (got == wanted) return;
  ++wrong;
  std::printf("%s: expected %d, got %d\n", what, static_cast<int>(wanted), static_cast<int>(got));
}

void Begin() {
  Want(Cu().cuInit(0), CUDA_SUCCESS, "cuInit");
  Want(Cu().cuDeviceGet(&device, 0), CUDA_SUCCESS, "cuDeviceGet");
  Want(Cu().cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  Want(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS, "cuCtxSetCurrent");
}

// Expects 0x21 everywhere and leaves 0x42.
void ReadAndWrite(CUdeviceptr memory, size_t size, CUstream stream) {
  std::vector<uint8_t> seen(size);
  Want(Cu().cuMemcpyDtoHAsync_v2(seen.data(), memory, size, stream), CUDA_SUCCESS, "copy");
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  for (const uint8_t byte : seen) {
    if (byte == 0x21) continue;
    ++wrong;
    std::printf("the memory does not hold what the other process wrote\n");
    break;
  }
  Want(Cu().cuMemsetD8Async(memory, 0x42, size, stream), CUDA_SUCCESS, "memset");
}

namespace {

CUfunction Load(const char* name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Want(Cu().cuModuleLoadData(&module, kKernels), CUDA_SUCCESS, "cuModuleLoadData");
  Want(Cu().cuModuleGetFunction(&function, module, name), CUDA_SUCCESS, "cuModuleGetFunction");
  return function;
}

int BeforeInit() {
  int count = 0;
  CUdevice any;
  CUcontext current;
  CUdeviceptr memory;
  Want(Cu().cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED, "cuDeviceGetCount");
  Want(Cu().cuDeviceGet(&any, 0), CUDA_ERROR_NOT_INITIALIZED, "cuDeviceGet");
  Want(Cu().cuCtxGetCurrent(&current), CUDA_ERROR_NOT_INITIALIZED, "cuCtxGetCurrent");
  Want(Cu().cuMemAlloc_v2(&memory, 4), CUDA_ERROR_NOT_INITIALIZED, "cuMemAlloc");
  int version = 0;
  Want(Cu().cuDriverGetVersion(&version), CUDA_SUCCESS, "cuDriverGetVersion needs no cuInit");
  Want(Cu().cuInit(1), CUDA_ERROR_INVALID_VALUE, "cuInit with flags");
  return wrong;
}

int WithoutContext() {
  Want(Cu().cuInit(0), CUDA_SUCCESS, "cuInit");
  Want(Cu().cuDeviceGet(&device, 0), CUDA_SUCCESS, "cuDeviceGet");
  unsigned flags;
  int active = 1;
  Want(Cu().cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS, "state");
  if (active != 0) {
    ++wrong;
    std::printf("the primary context is active before it was retained\n");
  }
  CUdeviceptr memory;
  CUmodule module;
  CUstream stream;
  CUdevice current;
  Want(Cu().cuMemAlloc_v2(&memory, 4), CUDA_ERROR_INVALID_CONTEXT, "cuMemAlloc");
  Want(Cu().cuModuleLoadData(&module, kKernels), CUDA_ERROR_INVALID_CONTEXT, "cuModuleLoadData");
  Want(Cu().cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT, "cuStreamCreate");
  Want(Cu().cuCtxGetDevice(&current), CUDA_ERROR_INVALID_CONTEXT, "cuCtxGetDevice");
  Want(Cu().cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "cuCtxSynchronize");
  return wrong;
}

// After the fault every call names its cause, also calls that need no device.
void Sticky(CUresult cause) {
  CUdeviceptr memory;
  CUstream stream;
  Want(Cu().cuCtxSynchronize(), cause, "cuCtxSynchronize again");
  Want(Cu().cuMemAlloc_v2(&memory, 4), cause, "cuMemAlloc");
  Want(Cu().cuStreamCreate(&stream, 0), cause, "cuStreamCreate");
}

int IllegalAddress() {
  Begin();
  CUfunction store = Load("store");
  CUdeviceptr valid = 0;
  Want(Cu().cuMemAlloc_v2(&valid, 4), CUDA_SUCCESS, "cuMemAlloc");
  Want(Launch(store, 1, 1, nullptr, valid, 5u), CUDA_SUCCESS, "launch");
  Want(Cu().cuCtxSynchronize(), CUDA_SUCCESS, "cuCtxSynchronize");
  Want(Launch(store, 1, 1, nullptr, CUdeviceptr{0x10}, 5u), CUDA_SUCCESS, "launch");
  Want(Cu().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "cuCtxSynchronize");
  Sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
  Want(Launch(store, 1, 1, nullptr, valid, 5u), CUDA_ERROR_ILLEGAL_ADDRESS, "launch again");
  return wrong;
}

// What was launched before it has run, what was launched behind it does not, and its code is its own; also
// where the sequence has run before without it.
int FaultInASequence() {
  Begin();
  constexpr uint32_t kEachSide = 100;
  CUfunction store = Load("store");
  void* host = nullptr;
  CUdeviceptr words = 0;
  Want(Cu().cuMemHostAlloc(&host, 8 * kEachSide, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS, "alloc");
  Want(Cu().cuMemHostGetDevicePointer_v2(&words, host, 0), CUDA_SUCCESS, "device pointer");
  volatile auto* seen = static_cast<uint32_t*>(host);
  for (uint32_t round = 1; round <= 20; ++round) {
    const bool faults = round == 20;
    for (uint32_t i = 0; i < 2 * kEachSide; ++i) {
      const bool wild = faults && i == kEachSide;
      const CUresult result =
          Launch(store, 1, 1, nullptr, wild ? CUdeviceptr{0x10} : words + 4 * i, round);
      // Behind a fault that has been seen already, launches say so.
      if (!faults || i <= kEachSide || result != CUDA_ERROR_ILLEGAL_ADDRESS) {
        Want(result, CUDA_SUCCESS, "launch");
      }
    }
    if (faults) break;
    Want(Cu().cuCtxSynchronize(), CUDA_SUCCESS, "cuCtxSynchronize");
  }
  Want(Cu().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "cuCtxSynchronize");
  Sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
  for (uint32_t i = 0; i < 2 * kEachSide; ++i) {
    if (seen[i] == (i < kEachSide ? 20u : 19u)) continue;
    ++wrong;
    std::printf("word %u is of round %u\n", i, seen[i]);
  }
  return wrong;
}

int MisalignedAddress() {
  Begin();
  CUfunction store = Load("store");
  CUdeviceptr valid = 0;
  Want(Cu().cuMemAlloc_v2(&valid, 64), CUDA_SUCCESS, "cuMemAlloc");
  Want(Launch(store, 1, 1, nullptr, valid + 2, 5u), CUDA_SUCCESS, "launch");
  Want(Cu().cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS, "cuCtxSynchronize");
  Sticky(CUDA_ERROR_MISALIGNED_ADDRESS);
  return wrong;
}

// A fault is seen by every way of waiting.
int FaultSeenByStream() {
  Begin();
  CUfunction store = Load("store");
  CUstream stream;
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  Want(Launch(store, 1, 1, stream, CUdeviceptr{0x10}, 5u), CUDA_SUCCESS, "launch");
  Want(Cu().cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamSynchronize");
  Want(Cu().cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamQuery");
  return wrong;
}

// A callback hears of the fault; a host function is not run any more.
int FaultTellsCallbacks() {
  Begin();
  CUfunction store = Load("store");
  static std::atomic<bool> open{false};
  static std::atomic<int> told{0};
  static std::atomic<bool> ran{false};
  CUstream stream;
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  const auto wait = [](void*) {
    while (!open) std::this_thread::yield();
  };
  const auto tell = [](CUstream, CUresult status, void*) { told = status; };
  const auto run = [](void*) { ran = true; };
  Want(Cu().cuLaunchHostFunc(stream, wait, nullptr), CUDA_SUCCESS, "cuLaunchHostFunc");
  Want(Launch(store, 1, 1, stream, CUdeviceptr{0x10}, 5u), CUDA_SUCCESS, "launch");
  Want(Cu().cuStreamAddCallback(stream, tell, nullptr, 0), CUDA_SUCCESS, "cuStreamAddCallback");
  Want(Cu().cuLaunchHostFunc(stream, run, nullptr), CUDA_SUCCESS, "cuLaunchHostFunc");
  open = true;
  Want(Cu().cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamSynchronize");
  for (int i = 0; i < 5000 && told == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Want(static_cast<CUresult>(told.load()), CUDA_ERROR_ILLEGAL_ADDRESS, "what the callback is told");
  if (ran) {
    ++wrong;
    std::printf("a host function ran after the fault\n");
  }
  return wrong;
}

// The process ends while a function runs and another waits: it ends.
int ExitInHostFunction() {
  Begin();
  static std::atomic<bool> entered{false};
  const auto sleep = [](void*) {
    entered = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  Want(Cu().cuLaunchHostFunc(nullptr, sleep, nullptr), CUDA_SUCCESS, "cuLaunchHostFunc");
  Want(Cu().cuLaunchHostFunc(nullptr, sleep, nullptr), CUDA_SUCCESS, "cuLaunchHostFunc");
  while (!entered) std::this_thread::yield();
  return wrong;
}

// The process ends while its kernel runs: it ends.
int ExitWithWork() {
  Begin();
  CUfunction spin = Load("spin");
  CUstream stream;
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  Want(Launch(spin, 1, 1, stream, uint64_t{200'000'000}), CUDA_SUCCESS, "launch");
  Want(Launch(spin, 1, 1, nullptr, uint64_t{200'000'000}), CUDA_SUCCESS, "launch");
  return wrong;
}

constexpr size_t kCopiedBytes = 8u << 20;

// Copies there and back for as long as the process lives, or until it is stopped; counts.
struct Copying {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};

  void Run(CUdeviceptr memory) {
    Want(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS, "cuCtxSetCurrent");
    const std::vector<uint8_t> source(kCopiedBytes, 0x42);
    std::vector<uint8_t> back(kCopiedBytes);
    while (!stop) {
      // The driver may have gone before us.
      if (Cu().cuMemcpyHtoD_v2(memory, source.data(), kCopiedBytes) != CUDA_SUCCESS) return;
      if (Cu().cuMemcpyDtoH_v2(back.data(), memory, kCopiedBytes) != CUDA_SUCCESS) return;
      if (back != source) {
        ++wrong;
        std::printf("a copy came back changed\n");
      }
      ++rounds;
    }
  }
};

// The process ends while another thread copies: it ends.
int ExitWhileCopying() {
  Begin();
  CUdeviceptr memory = 0;
  Want(Cu().cuMemAlloc_v2(&memory, kCopiedBytes), CUDA_SUCCESS, "cuMemAlloc");
  auto* copying = new Copying;
  std::thread([=] { copying->Run(memory); }).detach();
  while (copying->rounds < 3) std::this_thread::yield();
  return wrong;
}

int ForkedWhileCopying() {
  Begin();
  CUdeviceptr memory = 0;
  Want(Cu().cuMemAlloc_v2(&memory, kCopiedBytes), CUDA_SUCCESS, "cuMemAlloc");
  Copying copying;
  std::thread thread([&] { copying.Run(memory); });
  for (int i = 0; i < 5; ++i) {
    for (const int before = copying.rounds; copying.rounds < before + 2;) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) {
      ++wrong;
      std::printf("a child forked during a copy crashed: status %x\n", status);
    }
  }
  const int before = copying.rounds;
  while (copying.rounds < before + 2) std::this_thread::yield();
  copying.stop = true;
  thread.join();
  return wrong;
}

// What a static object's destructor does with CUDA works, or is refused because the driver has gone.
int CallsAfterMain() {
  static struct Late {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    ~Late() {
      for (const CUresult result :
           {Cu().cuMemFree_v2(memory), Cu().cuStreamDestroy_v2(stream), Cu().cuCtxSynchronize()}) {
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) _exit(9);
      }
    }
  } late;
  Begin();
  Want(Cu().cuMemAlloc_v2(&late.memory, 1 << 20), CUDA_SUCCESS, "cuMemAlloc");
  Want(Cu().cuStreamCreate(&late.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  return wrong;
}

// Given up by its last owner and taken again: memory, modules and variables are new.
int ContextAgain() {
  for (int round = 0; round < 3; ++round) {
    Begin();
    CUfunction use_globals = Load("use_globals");
    CUdeviceptr out = 0;
    uint32_t seen = 0;
    Want(Cu().cuMemAlloc_v2(&out, 1 << 20), CUDA_SUCCESS, "cuMemAlloc");
    Want(Launch(use_globals, 1, 1, nullptr, out), CUDA_SUCCESS, "launch");
    Want(Cu().cuMemcpyDtoH_v2(&seen, out, sizeof(seen)), CUDA_SUCCESS, "cuMemcpyDtoH");
    if (seen != 10) {
      ++wrong;
      std::printf("the variable did not begin anew: %u\n", seen);
    }
    Want(Cu().cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS, "cuDevicePrimaryCtxRelease");
    unsigned flags = 0;
    int active = 1;
    Want(Cu().cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS, "state");
    if (active != 0) {
      ++wrong;
      std::printf("the context is active after its last release\n");
    }
  }
  return wrong;
}

int Forked() {
  Begin();
  CUfunction store = Load("store");
  CUdeviceptr memory = 0;
  Want(Cu().cuMemAlloc_v2(&memory, 4), CUDA_SUCCESS, "cuMemAlloc");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr more;
    _exit(Cu().cuMemAlloc_v2(&more, 4) == CUDA_SUCCESS || Cu().cuCtxSynchronize() == CUDA_SUCCESS);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    ++wrong;
    std::printf("a child forked after cuInit could use CUDA, or crashed: status %x\n", status);
  }
  uint32_t seen = 0;
  Want(Launch(store, 1, 1, nullptr, memory, 5u), CUDA_SUCCESS, "launch after the fork");
  Want(Cu().cuMemcpyDtoH_v2(&seen, memory, 4), CUDA_SUCCESS, "copy after the fork");
  if (seen != 5) {
    ++wrong;
    std::printf("the parent's kernel did not run after the fork\n");
  }
  return wrong;
}

int OpensHandles() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  const auto memory_handle = FromParent<CUipcMemHandle>("GPULOOM_TEST_MEMORY");
  const auto event_handle = FromParent<CUipcEventHandle>("GPULOOM_TEST_EVENT");
  constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  CUdeviceptr memory = 0;
  CUdeviceptr again = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  Want(Cu().cuIpcOpenMemHandle_v2(&memory, memory_handle, kLazy), CUDA_SUCCESS, "open memory");
  Want(Cu().cuIpcOpenEventHandle(&event, event_handle), CUDA_SUCCESS, "open event");
  Want(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS, "cuStreamCreate");
  if (wrong != 0) return wrong;
  Want(Cu().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS, "cuStreamWaitEvent");
  Want(Cu().cuEventSynchronize(event), CUDA_SUCCESS, "cuEventSynchronize");
  Want(Cu().cuEventQuery(event), CUDA_SUCCESS, "cuEventQuery");
  ReadAndWrite(memory, size, stream);
  Want(Cu().cuEventRecord(event, stream), CUDA_SUCCESS, "cuEventRecord");
  Want(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS, "cuStreamSynchronize");
  Want(Cu().cuIpcOpenMemHandle_v2(&again, memory_handle, kLazy), CUDA_SUCCESS, "open again");
  if (again != memory) {
    ++wrong;
    std::printf("the same memory opened twice has two addresses\n");
  }
  Want(Cu().cuIpcCloseMemHandle(again), CUDA_SUCCESS, "close");
  Want(Cu().cuIpcCloseMemHandle(memory), CUDA_SUCCESS, "close at last");
  Want(Cu().cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE, "close once too often");
  Want(Cu().cuEventDestroy_v2(event), CUDA_SUCCESS, "cuEventDestroy");
  return wrong;
}

int ImportsDescriptor() {
  Begin();
  const auto size = FromParent<size_t>("GPULOOM_TEST_SIZE");
  const auto fd = FromParent<int>("GPULOOM_TEST_DESCRIPTOR");
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Want(Cu().cuMemImportFromShareableHandle(&memory,
                                           reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
       CUDA_SUCCESS, "import");
  if (wrong != 0) return wrong;
  Want(Cu().cuMemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS, "reserve");
  Want(Cu().cuMemMap(address, size, 0, memory, 0), CUDA_SUCCESS, "map");
  Want(Cu().cuMemSetAccess(address, size, &access, 1), CUDA_SUCCESS, "access");
  ReadAndWrite(address, size, nullptr);
  Want(Cu().cuCtxSynchronize(), CUDA_SUCCESS, "cuCtxSynchronize");
  // Ends with the mapping there: nobody has to tidy up.
  return wrong;
}

// A library's managed variables keep their addresses, and begin with their values, whether a kernel or the program has
// used them last.
int VariablesAgain() {
  Begin();
  CUlibrary library = nullptr;
  CUlibraryOption keeps = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* kept = reinterpret_cast<void*>(uintptr_t{1});
  Want(Cu().cuLibraryLoadData(&library, kLargeVariables, nullptr, nullptr, 0, &keeps, &kept, 1),
       CUDA_SUCCESS, "cuLibraryLoadData");
  CUkernel kernel = nullptr;
  Want(Cu().cuLibraryGetKernel(&kernel, library, "sweep"), CUDA_SUCCESS, "cuLibraryGetKernel");
  CUdeviceptr first = 0;
  for (uint32_t round = 0; round < 3; ++round) {
    CUdeviceptr large = 0, beside = 0;
    Want(Cu().cuLibraryGetManaged(&large, nullptr, library, "large"), CUDA_SUCCESS, "large");
    Want(Cu().cuLibraryGetManaged(&beside, nullptr, library, "beside"), CUDA_SUCCESS, "beside");
    if (wrong != 0) return wrong;
    if (round == 0) first = large;
    auto* words = reinterpret_cast<volatile uint32_t*>(large);
    const auto* counter = reinterpret_cast<const volatile uint32_t*>(beside);
    if (large != first || words[0] != 0 || *counter != kBesideBegins) {
      std::printf("round %u: %#llx for %#llx, %u, %u\n", round,
                  static_cast<unsigned long long>(large), static_cast<unsigned long long>(first),
                  words[0], *counter);
      return ++wrong;
    }
    words[0] = 10;
    Want(Launch(reinterpret_cast<CUfunction>(kernel), kSweptWords / 128, 128, nullptr, 1u),
         CUDA_SUCCESS, "launch");
    Want(Cu().cuCtxSynchronize(), CUDA_SUCCESS, "cuCtxSynchronize");
    if (round == 1 && (words[0] != 11 || *counter != kBesideBegins + kSweptWords)) ++wrong;
    Want(Cu().cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS, "cuDevicePrimaryCtxReset");
    // Until it is loaded again, they are as they were.
    if (words[0] != 11 || *counter != kBesideBegins + kSweptWords) ++wrong;
    Want(Cu().cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS, "retain");
    Want(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS, "cuCtxSetCurrent");
  }
  return wrong;
}

constexpr std::pair<const char*, int (*)()> kChildren[] = {
    {"before_init", BeforeInit},
    {"without_context", WithoutContext},
    {"fault_in_a_sequence", FaultInASequence},
    {"illegal_address", IllegalAddress},
    {"misaligned_address", MisalignedAddress},
    {"fault_seen_by_stream", FaultSeenByStream},
    {"fault_tells_callbacks", FaultTellsCallbacks},
    {"exit_in_host_function", ExitInHostFunction},
    {"exit_while_copying", ExitWhileCopying},
    {"exit_with_work", ExitWithWork},
    {"calls_after_main", CallsAfterMain},
    {"context_again", ContextAgain},
    {"variables_again", VariablesAgain},
    {"forked", Forked},
    {"forked_while_copying", ForkedWhileCopying},
    {"opens_handles", OpensHandles},
    {"imports_descriptor", ImportsDescriptor},
    {"imports_pool", ImportsPool},
    {"imports_pool_and_dies", ImportsPoolAndDies},
    {"exports_pool_and_dies", ExportsPoolAndDies},
    {"frees_behind_a_gate", FreesBehindAGate},
};

}  // namespace

int RunChildBody(const std::string& name) {
  for (const auto& [known, body] : kChildren) {
    if (name == known) return body();
  }
  std::printf("no child is called %s\n", name.c_str());
  return 100;
}

}  // namespace gpuloom::conformance
