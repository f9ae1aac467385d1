// SPDX-License-Identifier: Apache-2.0
// A tenant that looks at what it was given: CUDA and NVML as programs load them by name at run time,
// both about the same device, which computes, and nothing of NVIDIA's driver in this process. Says
// "ok", or what is wrong, and ends with 0 or 1. Uses no driver but what the loader finds, and no
// toolkit, so that the image can have it: `helm test` runs it in a pod.
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

constexpr unsigned kNumbers = 4096;
constexpr unsigned kBlock = 256;
// numbers[i] = 3 * numbers[i] + 1
constexpr char kKernel[] = R"PTX(
.version 7.0
.target sm_52
.address_size 64
.visible .entry step(.param .u64 numbers)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  mad.lo.s32 %r5, %r5, 3, 1;
  st.global.u32 [%rd3], %r5;
  ret;
}
)PTX";

// nvmlMemory_t and nvmlProcessInfo_t, as NVML's public documentation gives them.
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

// How many expectations have failed; the exit status depends on it.
int wrong = 0;

// Goes on after a failure: the later ones often say more.
void Expect(bool is_so, const std::string& what) {
  if (is_so) return;
  printf("wrong: %s\n", what.c_str());
  ++wrong;
}

// Never closed: the program lives as long as its libraries.
void* Load(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Expect(false, dlerror());
  return library;
}

// Calls a function of CUDA or NVML by name, both of which return an int that is 0 on success. The
// arguments' types are taken as the function's.
template <typename... Arguments>
int Call(void* library, const char* name, Arguments... arguments) {
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  Expect(function != nullptr, std::string(name) + " is missing");
  if (function == nullptr) return -1;
  const int result = reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  Expect(result == 0, std::string(name) + " returns " + std::to_string(result));
  return result;
}

// In memory that is there already.
void Compute(void* cuda, uint64_t memory) {
  std::vector<uint32_t> numbers(kNumbers);
  for (uint32_t i = 0; i < kNumbers; ++i) numbers[i] = i;
  const size_t size_bytes = numbers.size() * sizeof(uint32_t);
  void* module = nullptr;
  void* function = nullptr;
  void* arguments[] = {&memory};
  if (Call(cuda, "cuModuleLoadData", &module, static_cast<const void*>(kKernel)) != 0) return;
  Call(cuda, "cuModuleGetFunction", &function, module, "step");
  Call(cuda, "cuMemcpyHtoD_v2", memory, static_cast<const void*>(numbers.data()), size_bytes);
  Call(cuda, "cuLaunchKernel", function, kNumbers / kBlock, 1u, 1u, kBlock, 1u, 1u, 0u,
       static_cast<void*>(nullptr), &arguments[0], static_cast<void**>(nullptr));
  Call(cuda, "cuMemcpyDtoH_v2", static_cast<void*>(numbers.data()), memory, size_bytes);
  for (uint32_t i = 0; i < kNumbers; ++i) {
    if (numbers[i] == 3 * i + 1) continue;
    Expect(false, "3 * " + std::to_string(i) + " + 1 is " + std::to_string(numbers[i]));
    break;
  }
  Call(cuda, "cuModuleUnload", module);
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// In a container our libraries have the driver's names, which they are mounted under; what they say tells them apart.
bool IsOurs(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.find("GPULOOM_LOG") != std::string::npos;
}

// Files of NVIDIA's driver go by these names.
bool IsOfTheDriver(const std::string& path) {
  // A device node means that the container was given the device itself.
  if (path.rfind("/dev/nvidia", 0) == 0) return true;
  return (BaseName(path).rfind("libcuda.so", 0) == 0 ||
          BaseName(path).rfind("libnvidia-", 0) == 0) &&
         !IsOurs(path);
}

// After the computation, when all that is needed for it has been opened.
void ExpectNoDriver() {
  std::ifstream maps("/proc/self/maps");
  bool is_ours_mapped = false;
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    Expect(!IsOfTheDriver(path), path + " is mapped");
    const std::string name = BaseName(path);
    is_ours_mapped |=
        (name.rfind("libgpuloom", 0) == 0 || name.rfind("libcuda.so", 0) == 0) && IsOurs(path);
  }
  Expect(is_ours_mapped, "our libcuda is not mapped");
  DIR* const folder = opendir("/proc/self/fd");
  Expect(folder != nullptr, "/proc/self/fd cannot be read");
  int descriptors = 0;
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder)) {
    char target[PATH_MAX] = {};
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) < 0) continue;
    Expect(!IsOfTheDriver(target), std::string(target) + " is open");
    ++descriptors;
  }
  // Three are the standard ones, so a count above that shows that the session's can be seen at all.
  Expect(descriptors > 3, "no descriptor of the session is open");
  if (folder != nullptr) closedir(folder);
}

}  // namespace

int main() {
  // Before the numbered names, so that these are found and not merely remembered.
  void* const nvml = Load("libnvidia-ml.so");
  Expect(nvml == Load("libnvidia-ml.so.1"), "libnvidia-ml.so and libnvidia-ml.so.1 are two");
  void* const cuda = Load("libcuda.so");
  Expect(cuda == Load("libcuda.so.1"), "libcuda.so and libcuda.so.1 are two");
  // As a symbol that the program is linked to: the preloaded library's.
  Expect(cuda != nullptr && dlsym(RTLD_DEFAULT, "cuInit") == dlsym(cuda, "cuInit"),
         "the preloaded library is another one");

  // NVML alone: no session yet.
  unsigned count = 0;
  void* device = nullptr;
  Memory before{}, after{};
  Call(nvml, "nvmlInit_v2");
  Call(nvml, "nvmlDeviceGetCount_v2", &count);
  Expect(count == 1, std::to_string(count) + " devices");
  Call(nvml, "nvmlDeviceGetHandleByIndex_v2", 0u, &device);
  Call(nvml, "nvmlDeviceGetMemoryInfo", device, &before);
  Expect(before.used == 0, std::to_string(before.used) + " bytes in use before the first");
  Process processes[64] = {};
  count = 64;
  Call(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, &processes[0]);
  Expect(count == 0, std::to_string(count) + " processes before the first");

  int cuda_device = 0;
  void* context = nullptr;
  size_t total = 0;
  uint64_t memory = 0;
  char cuda_name[96] = {}, nvml_name[96] = {}, bus_id[32] = {};
  Call(cuda, "cuInit", 0u);
  Call(cuda, "cuDeviceGet", &cuda_device, 0);
  Call(cuda, "cuDevicePrimaryCtxRetain", &context, cuda_device);
  Call(cuda, "cuCtxSetCurrent", context);
  Call(cuda, "cuDeviceTotalMem_v2", &total, cuda_device);
  Expect(total == before.total, "CUDA has another total than NVML");
  Call(cuda, "cuDeviceGetName", &cuda_name[0], 96, cuda_device);
  Call(nvml, "nvmlDeviceGetName", device, &nvml_name[0], 96u);
  Expect(strcmp(cuda_name, nvml_name) == 0, std::string("NVML's name is ") + nvml_name);
  void* found = nullptr;
  Call(cuda, "cuDeviceGetPCIBusId", &bus_id[0], 32, cuda_device);
  Call(nvml, "nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus_id), &found);
  Expect(found == device, "CUDA's PCI place is of no device");
  Call(cuda, "cuMemAlloc_v2", &memory, size_t{64} * kMiB);
  Call(nvml, "nvmlDeviceGetMemoryInfo", device, &after);
  // The allocation and a little more, but not what others use of the GPU.
  Expect(after.used >= 64 * kMiB && after.used < 128 * kMiB,
         std::to_string(after.used) + " bytes in use after 64 MiB");
  count = 64;
  Call(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, &processes[0]);
  // NVML shows this tenant itself, by the number that it has in its own PID namespace, and nobody
  // else.
  Expect(count == 1 && processes[0].pid == static_cast<unsigned>(getpid()) &&
             processes[0].used == after.used,
         std::to_string(count) + " processes, the first " + std::to_string(processes[0].pid));
  Compute(cuda, memory);
  ExpectNoDriver();
  Call(cuda, "cuMemFree_v2", memory);
  Call(nvml, "nvmlShutdown");
  if (wrong == 0) printf("ok\n");
  return wrong == 0 ? 0 : 1;
}
