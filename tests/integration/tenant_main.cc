// SPDX-License-Identifier: Apache-2.0
// A tenant for the integration tests: one CUDA driver-API program with many habits. Says what it
// does line by line on standard output, and obeys lines on standard input, so that tests order
// events without sleeping.
//
//   vadd               adds two vectors and checks them
//   hold MIB           allocates, says "ready", frees nothing, ends when its input ends
//   managed MIB        has the device write managed memory, says "ready"; after a line of input touches all of it
//                      and says "touched"
//   refused MIB [HOW]  an allocation that must be refused for lack of memory, from a pool, with a pitch, with one
//                      whose size overflows, or by cuMemCreate (pool, pitch, overflow, create); then vadd. small: of
//                      MIB KiB, and no vadd
//   grow MIB           takes so much from a pool, 2 MiB at a time
//   spin SECONDS       says "running" while one kernel runs that long, then "done"
//   busy               says "running" while one kernel runs until there is a line of input, then "done"
//   waiting N M        says "running" while N graphs, each with M host functions beside each other, wait in
//                      them until there is a line of input, then "done"
//   endless            says "running"; its kernel never ends; ends at once when its input ends
//   graph              its graph waits for a value that nobody writes and in a host function that
//                      never returns; says "running" from there
//   fault              writes through a bad address; says "fault CODE"
//   watch              says "ready", then synchronises until an error comes; says "error CODE MS",
//                      the milliseconds since a line came on its input
//   bystander [limits] says "ready", behind raising the context's limits as far as a tenant may; then, for
//                      each line of input, allocates, copies, loads, launches, synchronises, unloads and
//                      frees; says "slowest MILLISECONDS ms: what", or "wrong …" when memory does not
//                      hold what it must
//   print NUMBER       says "ready"; after a line of input its kernels print "tenant NUMBER line N", N = 0
//                      to 199, at once and from two streams, and it says "synchronised N" between them
//   unsupported        calls a function that gpuloom does not have and asks for one that nobody has
//   share MIB          exports a pool and an allocation in it, says "shared PID FD DATA"; after a line of
//                      input frees both and says "freed"
//   take PID FD DATA   imports them and says "taken"; writes and says "written" for each line of input,
//                      but at "free" frees both and says "freed"; "refused CODE" when there is no pool
//   compile MIB        says "compiling" and loads a text of that length, which takes the driver some time;
//                      then "done"
//   inspect MIB        says "foreign N": how many words of fresh memory are not zero
//   later HABIT …      says "waits" before it asks CUDA anything, and begins with a line of input
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "proto/cuda/driver.h"
#include "tests/conformance/kernels.h"
#include "tests/integration/tenant_kernels.h"

namespace {

using SteadyClock = std::chrono::steady_clock;

gpuloom::Driver cu;
CUmodule module;

void Say(const std::string& line) { std::cout << line << std::endl; }

void Ok(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  Say(std::string("failed ") + what + " " + std::to_string(result));
  std::exit(1);
}

double Milliseconds(SteadyClock::time_point since) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - since).count();
}

void Begin() {
  CUdevice device;
  CUcontext context;
  Ok(cu.cuInit(0), "cuInit");
  Ok(cu.cuDeviceGet(&device, 0), "cuDeviceGet");
  Ok(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Ok(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Ok(cu.cuModuleLoadData(&module, gpuloom::conformance::kKernels), "cuModuleLoadData");
}

// So long a chain of instructions, each of which needs the one before, that a compiler takes seconds.
std::string LongText(size_t bytes) {
  std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry long(.param .u64 out)\n{\n"
      ".reg .b32 %x, %y; .reg .b64 %out;\nld.param.u64 %out, [out];\n"
      "cvta.to.global.u64 %out, %out;\nld.global.u32 %x, [%out];\nld.global.u32 %y, [%out+4];\n";
  for (unsigned i = 1; text.size() < bytes; ++i) {
    text +=
        "mad.lo.u32 %x, %x, %y, " + std::to_string(i * 2654435761u) + ";\nxor.b32 %y, %y, %x;\n";
  }
  return text + "st.global.u32 [%out], %x;\nst.global.u32 [%out+4], %y;\nret;\n}\n";
}

int Compile(size_t mib) {
  Begin();
  const std::string text = LongText(mib << 20);
  Say("compiling");
  CUmodule large;
  Ok(cu.cuModuleLoadData(&large, text.c_str()), "cuModuleLoadData");
  Say("done");
  return 0;
}

CUfunction Function(const char* name) {
  CUfunction function;
  Ok(cu.cuModuleGetFunction(&function, module, name), "cuModuleGetFunction");
  return function;
}

template <typename... Ts>
CUresult Launch(CUfunction function, unsigned blocks, unsigned threads, Ts... values) {
  void* parameters[] = {&values...};
  return cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr);
}

int VectorAdd() {
  constexpr unsigned kCount = 5000;
  std::vector<float> a(kCount), b(kCount), sum(kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f;
  }
  CUdeviceptr device_a, device_b, device_sum;
  for (CUdeviceptr* memory : {&device_a, &device_b, &device_sum}) {
    Ok(cu.cuMemAlloc_v2(memory, kCount * 4), "cuMemAlloc");
  }
  Ok(cu.cuMemcpyHtoD_v2(device_a, a.data(), kCount * 4), "cuMemcpyHtoD");
  Ok(cu.cuMemcpyHtoD_v2(device_b, b.data(), kCount * 4), "cuMemcpyHtoD");
  Ok(Launch(Function("add"), (kCount + 255) / 256, 256, device_a, device_b, device_sum, kCount),
     "cuLaunchKernel");
  Ok(cu.cuMemcpyDtoH_v2(sum.data(), device_sum, kCount * 4), "cuMemcpyDtoH");
  for (CUdeviceptr memory : {device_a, device_b, device_sum}) Ok(cu.cuMemFree_v2(memory), "free");
  for (unsigned i = 0; i < kCount; ++i) {
    if (sum[i] != a[i] + b[i]) {
      Say("wrong sum");
      return 1;
    }
  }
  Say("pass vadd");
  return 0;
}

int Hold(size_t mib) {
  CUdeviceptr memory;
  Ok(cu.cuMemAlloc_v2(&memory, mib << 20), "cuMemAlloc");
  Ok(cu.cuMemsetD32_v2(memory, 0x5ec4e75, (mib << 20) / 4), "cuMemsetD32");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("ready");
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

int Managed(size_t mib) {
  CUdeviceptr memory;
  Ok(cu.cuMemAllocManaged(&memory, mib << 20, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  Ok(cu.cuMemsetD32_v2(memory, 7, (mib << 20) / 4), "cuMemsetD32");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("ready");
  std::string line;
  std::getline(std::cin, line);
  auto* words = reinterpret_cast<volatile uint32_t*>(memory);
  for (size_t i = 0; i < (mib << 20) / 4; i += 1024) words[i] = words[i] + 1;
  Say("touched");
  return 0;
}

CUresult Allocate(size_t bytes, const std::string& how) {
  CUdeviceptr memory;
  if (how == "pool") return cu.cuMemAllocAsync(&memory, bytes, nullptr);
  if (how == "pitch" || how == "overflow") {
    size_t pitch;
    return cu.cuMemAllocPitch_v2(&memory, &pitch, bytes, how == "pitch" ? 1 : SIZE_MAX / 2, 4);
  }
  if (how == "create") {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle;
    return cu.cuMemCreate(&handle, bytes, &properties, 0);
  }
  return cu.cuMemAlloc_v2(&memory, bytes);
}

int Grow(size_t mib) {
  for (size_t taken = 0; taken < mib; taken += 2) {
    CUdeviceptr memory;
    Ok(cu.cuMemAllocAsync(&memory, 2u << 20, nullptr), "cuMemAllocAsync");
  }
  return 0;
}

int Refused(size_t mib, const std::string& how) {
  const bool is_small = how == "small";
  const CUresult result = Allocate(mib << (is_small ? 10 : 20), how);
  Say("refused " + std::to_string(result));
  if (is_small) return result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? VectorAdd() : 1;
}

// Returns once the kernel runs.
void LaunchSpin(uint64_t duration_ns) {
  void* memory;
  CUdeviceptr address;
  Ok(cu.cuMemHostAlloc(&memory, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  Ok(cu.cuMemHostGetDevicePointer_v2(&address, memory, 0), "cuMemHostGetDevicePointer");
  volatile uint32_t* started = static_cast<uint32_t*>(memory);
  *started = 0;
  Ok(Launch(Function("say_and_spin"), 1, 1, address, duration_ns), "cuLaunchKernel");
  while (*started == 0) std::this_thread::yield();
}

int Spin(double seconds) {
  LaunchSpin(static_cast<uint64_t>(seconds * 1e9));
  if (cu.cuStreamQuery(nullptr) != CUDA_ERROR_NOT_READY) {
    Say("the kernel does not run");
    return 1;
  }
  Say("running");
  const auto begin = SteadyClock::now();
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("done " + std::to_string(Milliseconds(begin)));
  return 0;
}

int Busy() {
  void* memory;
  CUdeviceptr flag;
  Ok(cu.cuMemHostAlloc(&memory, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  Ok(cu.cuMemHostGetDevicePointer_v2(&flag, memory, 0), "cuMemHostGetDevicePointer");
  volatile uint32_t* go = static_cast<uint32_t*>(memory);
  *go = 0;
  Ok(Launch(Function("wait_for"), 1, 1, flag), "cuLaunchKernel");
  Say("running");
  std::string line;
  std::getline(std::cin, line);
  if (cu.cuStreamQuery(nullptr) != CUDA_ERROR_NOT_READY) {
    Say("the kernel gave up");
    return 1;
  }
  *go = 1;
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("done");
  return 0;
}

int Endless() {
  LaunchSpin(uint64_t{1} << 62);
  Say("running");
  for (std::string line; std::getline(std::cin, line);) {
  }
  _exit(0);
}

int Graph() {
  CUcontext context;
  CUdeviceptr memory;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  CUstream stream;
  Ok(cu.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  Ok(cu.cuMemAlloc_v2(&memory, 4096), "cuMemAlloc");
  Ok(cu.cuMemsetD32_v2(memory, 0, 1024), "cuMemsetD32");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  Ok(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
  CUstreamBatchMemOpParams wait = {};
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = memory;
  wait.waitValue.value = 5;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context, 1, &wait, 0};
  Ok(cu.cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch), "cuGraphAddBatchMemOpNode");
  const CUDA_HOST_NODE_PARAMS host = {[](void*) {
                                        Say("running");
                                        for (;;) pause();
                                      },
                                      nullptr};
  Ok(cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &host), "cuGraphAddHostNode");
  Ok(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
  for (int i = 0; i < 3; ++i) Ok(cu.cuGraphLaunch(exec, stream), "cuGraphLaunch");
  for (std::string line; std::getline(std::cin, line);) {
  }
  _exit(0);
}

int Fault() {
  Ok(Launch(Function("store"), 1, 1, CUdeviceptr{0x10}, 5u), "cuLaunchKernel");
  const CUresult result = cu.cuCtxSynchronize();
  CUdeviceptr memory;
  const CUresult again = cu.cuMemAlloc_v2(&memory, 4);
  Say("fault " + std::to_string(result));
  return result != CUDA_SUCCESS && again == result ? 0 : 1;
}

int Watch() {
  CUfunction spin = Function("spin");
  Ok(Launch(spin, 1, 1, uint64_t{1000}), "cuLaunchKernel");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("ready");
  std::string line;
  std::getline(std::cin, line);
  const auto begin = SteadyClock::now();
  for (;;) {
    CUresult result = Launch(spin, 1, 1, uint64_t{1'000'000});
    if (result == CUDA_SUCCESS) result = cu.cuCtxSynchronize();
    if (result != CUDA_SUCCESS) {
      Say("error " + std::to_string(result) + " " + std::to_string(Milliseconds(begin)));
      return 0;
    }
  }
}

std::atomic<bool> may_return{false};
std::atomic<int> host_calls{0};
void CUDA_CB WaitForInput(void*) {
  ++host_calls;
  while (!may_return) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
int Waiting(int graphs, int functions) {
  for (int i = 0; i < graphs; ++i) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    Ok(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
    for (int k = 0; k < functions; ++k) {
      const CUDA_HOST_NODE_PARAMS params = {WaitForInput, nullptr};
      CUgraphNode node = nullptr;
      Ok(cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &params), "cuGraphAddHostNode");
    }
    Ok(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    Ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    Ok(cu.cuGraphLaunch(exec, stream), "cuGraphLaunch");
  }
  while (host_calls == 0) std::this_thread::yield();
  Say("running");
  std::string line;
  std::getline(std::cin, line);
  may_return = true;
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  if (host_calls != graphs * functions) {
    Say(std::to_string(host_calls) + " functions were called");
    return 1;
  }
  Say("done");
  return 0;
}
int Bystander(bool raises_limits) {
  // Who raises a limit pays for it until the executor ends: now nobody else in the domain has to.
  // What is beyond its quota, as stacks are for all threads of a large device, is beyond theirs, too.
  const auto raise = [](CUlimit limit, size_t bytes) {
    const CUresult result = cu.cuCtxSetLimit(limit, bytes);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) Ok(result, "cuCtxSetLimit");
  };
  if (raises_limits) {
    raise(CU_LIMIT_STACK_SIZE, 16u << 10);
    raise(CU_LIMIT_PRINTF_FIFO_SIZE, 16u << 20);
    raise(CU_LIMIT_MALLOC_HEAP_SIZE, 128u << 20);
  }
  Say("ready");
  CUdeviceptr counter;
  Ok(cu.cuMemAlloc_v2(&counter, 4), "cuMemAlloc");
  Ok(cu.cuMemsetD32_v2(counter, 0, 1), "cuMemsetD32");
  uint32_t counted = 0;
  for (std::string line; std::getline(std::cin, line);) {
    double slowest = 0;
    const char* slowest_step = "";
    const auto step = [&](const char* what, auto&& action) {
      const auto begin = SteadyClock::now();
      Ok(action(), what);
      const double took = Milliseconds(begin);
      if (took > slowest) {
        slowest = took;
        slowest_step = what;
      }
    };
    CUdeviceptr memory = 0;
    CUmodule other = nullptr;
    CUstream stream = nullptr;
    CUfunction function = nullptr;
    uint32_t count = 0;
    const std::vector<char> sent(1 << 20, static_cast<char>('a' + counted % 23));
    std::vector<char> received(sent.size());
    step("allocate", [&] { return cu.cuMemAlloc_v2(&memory, 5 << 20); });
    step("copy", [&] { return cu.cuMemcpyHtoD_v2(memory, sent.data(), sent.size()); });
    step("load", [&] { return cu.cuModuleLoadData(&other, gpuloom::kCodeOnly); });
    step("function", [&] { return cu.cuModuleGetFunction(&function, other, "increment"); });
    step("launch", [&] { return Launch(function, 1, 32, counter); });
    step("create a stream", [&] { return cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); });
    step("synchronise", [&] { return cu.cuCtxSynchronize(); });
    step("destroy a stream", [&] { return cu.cuStreamDestroy_v2(stream); });
    step("copy back", [&] { return cu.cuMemcpyDtoH_v2(received.data(), memory, received.size()); });
    step("count", [&] { return cu.cuMemcpyDtoH_v2(&count, counter, 4); });
    step("unload", [&] { return cu.cuModuleUnload(other); });
    step("free", [&] { return cu.cuMemFree_v2(memory); });
    counted += 32;
    if (received != sent || count != counted) {
      Say("wrong: " + std::to_string(count) + " counted instead of " + std::to_string(counted) +
          (received != sent ? ", and memory that does not hold what was copied to it" : ""));
      return 1;
    }
    Say("slowest " + std::to_string(slowest) + " ms: " + slowest_step);
  }
  return 0;
}

int Print(uint32_t number) {
  CUmodule printing;
  CUfunction function;
  CUstream streams[2];
  Ok(cu.cuModuleLoadData(&printing, gpuloom::kPrints), "cuModuleLoadData");
  Ok(cu.cuModuleGetFunction(&function, printing, "print"), "cuModuleGetFunction");
  for (CUstream& stream : streams) {
    Ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  Say("ready");
  std::string line;
  std::getline(std::cin, line);
  for (uint32_t i = 0; i < 200; ++i) {
    void* parameters[] = {&number, &i};
    CUstream stream = streams[i % 2];
    Ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
       "cuLaunchKernel");
    if (i % 20 != 19) continue;
    Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    Say("synchronised " + std::to_string(i));
  }
  return 0;
}

int Unsupported() {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  Ok(cu.cuGetProcAddress_v2("cuFly\nAway", &function, CUDA_VERSION, 0, &status),
     "cuGetProcAddress");
  const CUresult result = cu.cuGraphicsUnregisterResource(nullptr);
  size_t free = 0, total = 0;
  // Answered in order: the node knows of the others when this returns.
  Ok(cu.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return result == CUDA_ERROR_NOT_SUPPORTED && function == nullptr ? 0 : 1;
}

std::string ToText(const CUmemPoolPtrExportData& data) {
  std::string text;
  for (const unsigned char byte : data.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

CUmemPoolPtrExportData FromText(const std::string& text) {
  CUmemPoolPtrExportData data = {};
  for (size_t i = 0; i < sizeof(data.reserved) && 2 * i + 1 < text.size(); ++i) {
    data.reserved[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return data;
}

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// What both know of the allocation.
constexpr unsigned char kShared = 0x5a;

int FreeOnRequest(CUdeviceptr memory, CUmemoryPool pool) {
  std::string line;
  if (std::getline(std::cin, line)) {
    Ok(cu.cuMemFreeAsync(memory, nullptr), "cuMemFreeAsync");
    Ok(cu.cuMemPoolDestroy(pool), "cuMemPoolDestroy");
    Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    Say("freed");
  }
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

int Share(size_t mib) {
  CUmemPoolProps wanted = {};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.handleTypes = kDescriptor;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool;
  CUdeviceptr memory;
  int fd = -1;
  CUmemPoolPtrExportData data;
  Ok(cu.cuMemPoolCreate(&pool, &wanted), "cuMemPoolCreate");
  Ok(cu.cuMemAllocFromPoolAsync(&memory, mib << 20, pool, nullptr), "cuMemAllocFromPoolAsync");
  Ok(cu.cuMemsetD8_v2(memory, kShared, mib << 20), "cuMemsetD8");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Ok(cu.cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0), "export");
  Ok(cu.cuMemPoolExportPointer(&data, memory), "cuMemPoolExportPointer");
  Say("shared " + std::to_string(getpid()) + " " + std::to_string(fd) + " " + ToText(data));
  return FreeOnRequest(memory, pool);
}

int Take(const std::string& pid, const std::string& descriptor, const std::string& text) {
  const int fd = open(("/proc/" + pid + "/fd/" + descriptor).c_str(), O_RDONLY | O_CLOEXEC);
  CUmemoryPool pool;
  CUdeviceptr memory;
  const CUresult result = cu.cuMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor, 0);
  if (result != CUDA_SUCCESS) {
    Say("refused " + std::to_string(result));
    return fd >= 0 ? VectorAdd() : 1;
  }
  CUmemPoolPtrExportData data = FromText(text);
  size_t size_bytes = 0;
  Ok(cu.cuMemPoolImportPointer(&memory, pool, &data), "cuMemPoolImportPointer");
  Ok(cu.cuMemGetAddressRange_v2(nullptr, &size_bytes, memory), "cuMemGetAddressRange");
  std::vector<unsigned char> bytes(size_bytes);
  Ok(cu.cuMemcpyDtoH_v2(bytes.data(), memory, size_bytes), "cuMemcpyDtoH");
  if (bytes != std::vector<unsigned char>(size_bytes, kShared)) return 1;
  Say("taken");
  for (std::string line; std::getline(std::cin, line) && line != "free";) {
    Ok(cu.cuMemsetD8_v2(memory, kShared, size_bytes), "cuMemsetD8");
    Ok(cu.cuMemcpyDtoH_v2(bytes.data(), memory, size_bytes), "cuMemcpyDtoH");
    if (bytes != std::vector<unsigned char>(size_bytes, kShared)) return 1;
    Say("written");
  }
  Ok(cu.cuMemFreeAsync(memory, nullptr), "cuMemFreeAsync");
  Ok(cu.cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  Say("freed");
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

// Whether fresh memory holds what somebody else left there.
int Inspect(size_t mib) {
  CUdeviceptr memory;
  Ok(cu.cuMemAlloc_v2(&memory, mib << 20), "cuMemAlloc");
  std::vector<uint32_t> words((mib << 20) / 4, 1);
  Ok(cu.cuMemcpyDtoH_v2(words.data(), memory, mib << 20), "cuMemcpyDtoH");
  size_t foreign = 0;
  for (uint32_t word : words) foreign += word != 0;
  Say("foreign " + std::to_string(foreign));
  return foreign == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "later") {
    Say("waits");
    std::string line;
    std::getline(std::cin, line);
    --argc;
    ++argv;
  }
  std::string error;
  if (argc < 2 || !gpuloom::Load("libcuda.so.1", &cu, &error)) {
    std::fprintf(stderr, "usage: gpuloom-tenant habit [number]; %s\n", error.c_str());
    return 2;
  }
  const std::string habit = argv[1];
  const double number = argc > 2 ? std::strtod(argv[2], nullptr) : 0;
  Begin();
  if (habit == "vadd") return VectorAdd();
  if (habit == "hold") return Hold(static_cast<size_t>(number));
  if (habit == "managed") return Managed(static_cast<size_t>(number));
  if (habit == "refused") return Refused(static_cast<size_t>(number), argc > 3 ? argv[3] : "");
  if (habit == "grow") return Grow(static_cast<size_t>(number));
  if (habit == "spin") return Spin(number);
  if (habit == "busy") return Busy();
  if (habit == "endless") return Endless();
  if (habit == "graph") return Graph();
  if (habit == "fault") return Fault();
  if (habit == "watch") return Watch();
  if (habit == "waiting" && argc > 3) return Waiting(std::atoi(argv[2]), std::atoi(argv[3]));
  if (habit == "bystander") return Bystander(/*raises_limits=*/argc > 2);
  if (habit == "compile") return Compile(static_cast<size_t>(number));
  if (habit == "print") return Print(static_cast<uint32_t>(number));
  if (habit == "unsupported") return Unsupported();
  if (habit == "inspect") return Inspect(static_cast<size_t>(number));
  if (habit == "share") return Share(static_cast<size_t>(number));
  if (habit == "take" && argc > 4) return Take(argv[2], argv[3], argv[4]);
  std::fprintf(stderr, "gpuloom-tenant: unknown habit %s\n", argv[1]);
  return 2;
}
