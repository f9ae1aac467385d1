// SPDX-License-Identifier: Apache-2.0
// What programs built with CUDA 11.8 to 13.0 do from registering their device code to unloading it,
// done with each of the given runtimes in one process, and with all of them in turns.
//
//   programs PART IMAGES VERSION=PATH...
//
// PART is `kernels`, or `managed` for managed variables, which are used before anything else.
// IMAGES is the folder of the images. Prints PASS and exits with 0, or FAIL and what failed. Exit
// status 77 if a runtime is not there.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/runtimes/runtime.h"

// CUDA 11's; the toolkit has dropped it.
struct textureReference {
  int normalized;
  cudaTextureFilterMode filter;
  cudaTextureAddressMode address[3];
  cudaChannelFormatDesc channels;
  int srgb;
  unsigned anisotropy;
  cudaTextureFilterMode mipmap_filter;
  float mipmap_bias;
  float mipmap_least;
  float mipmap_most;
  int no_trilinear_optimization;
  int reserved[14];
};

extern "C" {
void __cudaRegisterManagedVar(void** handle, void** variable, char* address, const char* name,
                              int external, size_t size_bytes, int constant, int global);
char __cudaInitModule(void** handle);
void __cudaRegisterTexture(void** handle, const textureReference* texture, const void** address,
                           const char* name, int dimensions, int normalized, int external);
cudaError_t cudaBindTexture(size_t* offset_bytes, const textureReference* texture,
                            const void* memory, const cudaChannelFormatDesc* channels,
                            size_t size_bytes);
cudaError_t cudaUnbindTexture(const textureReference* texture);
cudaError_t cudaThreadSynchronize();
}

namespace {

constexpr unsigned kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(unsigned);

void Require(const Runtime& runtime, bool holds, const char* what) {
  if (!holds) Fail(&runtime, what);
}

// kernels.ptx in one runtime, and what its variables hold.
struct Kernels {
  Kernels(const Runtime& with, const std::string& images)
      : runtime(with), image(with, images + "/kernels.fatbin") {
    image.Kernel(&stub, "Scale");
    image.Variable(&offset, "offset", sizeof(offset), false);
    image.Variable(factors, "factors", sizeof(factors), true);
    image.Ready();
  }

  void Scale(unsigned* values, cudaStream_t stream = nullptr) const {
    unsigned count = kCount;
    void* arguments[] = {&values, &count};
    image.Launch(&stub, (kCount + 127) / 128, 128, stream, arguments);
  }
  // What Scale makes of one value.
  [[nodiscard]] unsigned Scaled(unsigned index, unsigned value) const {
    return value * factors[index % 4] + offset;
  }
  void SetOffset(unsigned value) {
    runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMemcpyToSymbol)(&offset, &value, sizeof(value), 0,
                                                             cudaMemcpyHostToDevice),
               "cudaMemcpyToSymbol");
    offset = value;
  }
  // As after loading.
  void Forget() {
    offset = 7;
    for (unsigned i = 0; i < 4; ++i) factors[i] = i + 1;
  }

  const Runtime& runtime;
  RegisteredImage image;
  char stub = 0;
  unsigned offset = 7;
  unsigned factors[4] = {1, 2, 3, 4};
};

void Properties(const Runtime& runtime) {
  int count = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGetDeviceCount)(&count), "cudaGetDeviceCount");
  Require(runtime, count >= 1, "there is no device");
  int driver = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaDriverGetVersion)(&driver), "cudaDriverGetVersion");
  Require(runtime, driver >= 12020, "the driver's version is older than gpuloom supports");
  // The fields up to the grid's size have stayed where they are. CUDA 12 has a new name for what
  // its headers declare.
  union {
    cudaDeviceProp now;
    char room[4096];
  } properties = {};
  const char* name = runtime.Has("cudaGetDeviceProperties_v2") ? "cudaGetDeviceProperties_v2"
                                                               : "cudaGetDeviceProperties";
  runtime.Ok(runtime.Get<cudaError_t(void*, int)>(name)(&properties, 0), name);
  Require(runtime, properties.now.name[0] != 0, "the device has no name");
  Require(runtime, properties.now.totalGlobalMem > (64u << 20), "the device has no memory");
  Require(runtime, properties.now.warpSize == 32, "the warp's size is wrong");
  int major = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaDeviceGetAttribute)(
                 &major, cudaDevAttrComputeCapabilityMajor, 0),
             "cudaDeviceGetAttribute");
  Require(runtime, major >= 7, "the compute capability is wrong");
}

void OnHost(void* called) { *static_cast<int*>(called) += 1; }
void OnStream(cudaStream_t, cudaError_t status, void* called) {
  if (status == cudaSuccess) *static_cast<int*>(called) += 1;
}

void Streams(Kernels& kernels) {
  const Runtime& runtime = kernels.runtime;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  unsigned* host = nullptr;
  unsigned* device = nullptr;
  int called = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaEventCreate)(&begin), "cudaEventCreate");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaEventCreate)(&end), "cudaEventCreate");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaHostAlloc)(reinterpret_cast<void**>(&host), kBytes,
                                                      cudaHostAllocDefault),
             "cudaHostAlloc");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMalloc)(reinterpret_cast<void**>(&device), kBytes),
             "cudaMalloc");
  for (unsigned i = 0; i < kCount; ++i) host[i] = i;
  const auto copy = RUNTIME_FUNCTION(runtime, cudaMemcpyAsync);
  const auto record = RUNTIME_FUNCTION(runtime, cudaEventRecord);
  runtime.Ok(record(begin, stream), "cudaEventRecord");
  runtime.Ok(copy(device, host, kBytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  kernels.Scale(device, stream);
  runtime.Ok(copy(host, device, kBytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamAddCallback)(stream, &OnStream, &called, 0),
             "cudaStreamAddCallback");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaLaunchHostFunc)(stream, &OnHost, &called),
             "cudaLaunchHostFunc");
  runtime.Ok(record(end, stream), "cudaEventRecord");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamSynchronize)(stream), "cudaStreamSynchronize");
  float milliseconds = -1;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaEventElapsedTime)(&milliseconds, begin, end),
             "cudaEventElapsedTime");
  Require(runtime, milliseconds >= 0, "the time between events is negative");
  Require(runtime, called == 2, "the stream's host functions were not called");
  for (unsigned i = 0; i < kCount; ++i) {
    Require(runtime, host[i] == kernels.Scaled(i, i), "a kernel in a stream wrote a wrong value");
  }
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFree)(device), "cudaFree");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFreeHost)(host), "cudaFreeHost");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaEventDestroy)(begin), "cudaEventDestroy");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaEventDestroy)(end), "cudaEventDestroy");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamDestroy)(stream), "cudaStreamDestroy");
}

// Waits for everything, with the name that CUDA 3 had for it where that still is there.
void Wait(const Runtime& runtime) {
  if (runtime.version() < 13000) {
    runtime.Ok(RUNTIME_FUNCTION(runtime, cudaThreadSynchronize)(), "cudaThreadSynchronize");
  } else {
    runtime.Ok(RUNTIME_FUNCTION(runtime, cudaDeviceSynchronize)(), "cudaDeviceSynchronize");
  }
}

// Variables, and managed memory.
void Symbols(Kernels& kernels) {
  const Runtime& runtime = kernels.runtime;
  kernels.SetOffset(100);
  const unsigned changed = 30;
  runtime.Ok(
      RUNTIME_FUNCTION(runtime, cudaMemcpyToSymbol)(kernels.factors, &changed, sizeof(changed),
                                                    2 * sizeof(changed), cudaMemcpyHostToDevice),
      "cudaMemcpyToSymbol");
  kernels.factors[2] = changed;
  size_t size_bytes = 0;
  void* address = nullptr;
  unsigned seen = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGetSymbolSize)(&size_bytes, kernels.factors),
             "cudaGetSymbolSize");
  Require(runtime, size_bytes == sizeof(kernels.factors), "a variable's size is wrong");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGetSymbolAddress)(&address, &kernels.offset),
             "cudaGetSymbolAddress");
  runtime.Ok(
      RUNTIME_FUNCTION(runtime, cudaMemcpy)(&seen, address, sizeof(seen), cudaMemcpyDeviceToHost),
      "cudaMemcpy");
  Require(runtime, seen == 100, "a variable's address is not where it was written");
  seen = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMemcpyFromSymbol)(
                 &seen, kernels.factors, sizeof(seen), 3 * sizeof(seen), cudaMemcpyDeviceToHost),
             "cudaMemcpyFromSymbol");
  Require(runtime, seen == 4, "a constant's initial value is missing");

  unsigned* managed = nullptr;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMallocManaged)(reinterpret_cast<void**>(&managed),
                                                          kBytes, cudaMemAttachGlobal),
             "cudaMallocManaged");
  for (unsigned i = 0; i < kCount; ++i) managed[i] = 2 * i;
  kernels.Scale(managed);
  Wait(runtime);
  for (unsigned i = 0; i < kCount; ++i) {
    Require(runtime, managed[i] == kernels.Scaled(i, 2 * i), "managed memory has a wrong value");
  }
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFree)(managed), "cudaFree");
}

void Functions(const Kernels& kernels) {
  const Runtime& runtime = kernels.runtime;
  cudaFuncAttributes attributes = {};
  char room[512];  // older runtimes have fewer attributes, newer ones would have more
  runtime.Ok(
      runtime.Get<cudaError_t(void*, const void*)>("cudaFuncGetAttributes")(room, &kernels.stub),
      "cudaFuncGetAttributes");
  std::memcpy(&attributes, room, offsetof(cudaFuncAttributes, ptxVersion));
  Require(runtime, attributes.maxThreadsPerBlock == 1024, "the kernel's largest block is wrong");
  int blocks = 0;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaOccupancyMaxActiveBlocksPerMultiprocessor)(
                 &blocks, &kernels.stub, 128, 0),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  Require(runtime, blocks > 0, "no block of the kernel fits");

  const char unregistered = 0;
  void* arguments[] = {nullptr};
  const cudaError_t refused = RUNTIME_FUNCTION(runtime, cudaLaunchKernel)(
      &unregistered, dim3(1), dim3(1), arguments, 0, nullptr);
  // CUDA 13 asks the driver, for it may be a handle of a kernel.
  const cudaError_t expected =
      runtime.version() < 13000 ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidResourceHandle;
  if (refused != expected) {
    Fail(&runtime, "a kernel that was never registered: cudaLaunchKernel returned " +
                       std::to_string(refused));
  }
  Require(runtime, RUNTIME_FUNCTION(runtime, cudaGetLastError)() == refused,
          "the last error is another one");
}

// Captured, and instantiated as the runtime's own headers declare it.
void Graphs(const Kernels& kernels) {
  const Runtime& runtime = kernels.runtime;
  cudaStream_t stream = nullptr;
  unsigned* device = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamCreate)(&stream), "cudaStreamCreate");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMalloc)(reinterpret_cast<void**>(&device), kBytes),
             "cudaMalloc");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMemset)(device, 0, kBytes), "cudaMemset");
  runtime.Ok(
      RUNTIME_FUNCTION(runtime, cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal),
      "cudaStreamBeginCapture");
  kernels.Scale(device, stream);
  kernels.Scale(device, stream);
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamEndCapture)(stream, &graph),
             "cudaStreamEndCapture");
  if (runtime.version() < 12000) {
    cudaGraphNode_t failed = nullptr;
    char log[64] = {};
    runtime.Ok(
        runtime.Get<cudaError_t(cudaGraphExec_t*, cudaGraph_t, cudaGraphNode_t*, char*, size_t)>(
            "cudaGraphInstantiate")(&made, graph, &failed, log, sizeof(log)),
        "cudaGraphInstantiate");
  } else {
    runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGraphInstantiate)(&made, graph, 0),
               "cudaGraphInstantiate");
  }
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGraphLaunch)(made, stream), "cudaGraphLaunch");
  std::vector<unsigned> values(kCount);
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMemcpyAsync)(values.data(), device, kBytes,
                                                        cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamSynchronize)(stream), "cudaStreamSynchronize");
  for (unsigned i = 0; i < kCount; ++i) {
    Require(runtime, values[i] == kernels.Scaled(i, kernels.Scaled(i, 0)),
            "a graph's kernels wrote a wrong value");
  }
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGraphExecDestroy)(made), "cudaGraphExecDestroy");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaGraphDestroy)(graph), "cudaGraphDestroy");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFree)(device), "cudaFree");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaStreamDestroy)(stream), "cudaStreamDestroy");
}

// Texture references, which CUDA 12 removed.
void Textures(const Runtime& runtime, const std::string& images) {
  Require(runtime, runtime.Has("cudaBindTexture") == (runtime.version() < 12000),
          "texture references belong to CUDA 11");
  if (runtime.version() >= 12000) return;
  constexpr unsigned kTexels = 128;  // of the hardware's alignment
  textureReference source = {};
  source.filter = cudaFilterModePoint;
  for (cudaTextureAddressMode& mode : source.address) mode = cudaAddressModeClamp;
  source.channels = {32, 0, 0, 0, cudaChannelFormatKindFloat};
  RegisteredImage image(runtime, images + "/textures.fatbin");
  const char stub = 0;
  image.Kernel(&stub, "Fetch");
  RUNTIME_FUNCTION(runtime, __cudaRegisterTexture)
  (image.handle(), &source, reinterpret_cast<const void**>(const_cast<char*>("source")), "source",
   1, 0, 0);
  image.Ready();

  float* device = nullptr;
  float* out = nullptr;
  const size_t bytes = kTexels * sizeof(float);
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMalloc)(reinterpret_cast<void**>(&device), 2 * bytes),
             "cudaMalloc");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMalloc)(reinterpret_cast<void**>(&out), bytes),
             "cudaMalloc");
  std::vector<float> values(2 * kTexels);
  for (unsigned i = 0; i < values.size(); ++i) values[i] = 0.5f * static_cast<float>(i);
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaMemcpy)(device, values.data(), 2 * bytes,
                                                   cudaMemcpyHostToDevice),
             "cudaMemcpy");
  // Bound to one half of the memory, then to the other.
  for (unsigned half = 0; half < 2; ++half) {
    size_t offset_bytes = 1;
    runtime.Ok(RUNTIME_FUNCTION(runtime, cudaBindTexture)(
                   &offset_bytes, &source, device + half * kTexels, &source.channels, bytes),
               "cudaBindTexture");
    Require(runtime, offset_bytes == 0, "a texture's memory is not aligned as it says");
    unsigned count = kTexels;
    void* arguments[] = {&out, &count};
    image.Launch(&stub, 1, kTexels, nullptr, arguments);
    std::vector<float> seen(kTexels);
    runtime.Ok(
        RUNTIME_FUNCTION(runtime, cudaMemcpy)(seen.data(), out, bytes, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    for (unsigned i = 0; i < kTexels; ++i) {
      Require(runtime, seen[i] == values[half * kTexels + i], "a texture has a wrong value");
    }
  }
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaUnbindTexture)(&source), "cudaUnbindTexture");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFree)(device), "cudaFree");
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaFree)(out), "cudaFree");
}

// The runtime loads its images again, with their initial values.
void Reset(Kernels& kernels) {
  kernels.runtime.Ok(RUNTIME_FUNCTION(kernels.runtime, cudaDeviceReset)(), "cudaDeviceReset");
  kernels.Forget();
  Streams(kernels);
}

// One allocation for all, as they share the device's primary context; and every image has variables
// of its own.
void Together(std::vector<std::unique_ptr<Kernels>>& all) {
  const Runtime& first = all.front()->runtime;
  unsigned* device = nullptr;
  first.Ok(RUNTIME_FUNCTION(first, cudaMalloc)(reinterpret_cast<void**>(&device), kBytes),
           "cudaMalloc");
  std::vector<unsigned> values(kCount);
  for (unsigned i = 0; i < kCount; ++i) values[i] = i;
  first.Ok(
      RUNTIME_FUNCTION(first, cudaMemcpy)(device, values.data(), kBytes, cudaMemcpyHostToDevice),
      "cudaMemcpy");
  unsigned offset = 1000;
  for (auto& kernels : all) kernels->SetOffset(offset += 10);
  for (auto& kernels : all) {
    kernels->Scale(device);
    for (unsigned i = 0; i < kCount; ++i) values[i] = kernels->Scaled(i, values[i]);
  }
  const Runtime& last = all.back()->runtime;
  std::vector<unsigned> seen(kCount);
  last.Ok(RUNTIME_FUNCTION(last, cudaMemcpy)(seen.data(), device, kBytes, cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  Require(last, seen == values, "runtimes in one process do not see each other's work");
  last.Ok(RUNTIME_FUNCTION(last, cudaFree)(device), "cudaFree");
}

// A managed variable, used as nvcc's code does: by a pointer that the runtime sets.
void Managed(const Runtime& runtime, const std::string& images) {
  RegisteredImage image(runtime, images + "/managed.fatbin");
  const char stub = 0;
  int* counter = nullptr;
  image.Kernel(&stub, "Count");
  RUNTIME_FUNCTION(runtime, __cudaRegisterManagedVar)
  (image.handle(), reinterpret_cast<void**>(&counter), const_cast<char*>("counter"), "counter", 0,
   sizeof(int), 0, 0);
  image.Ready();
  RUNTIME_FUNCTION(runtime, __cudaInitModule)(image.handle());
  int by = 3;
  void* arguments[] = {&by};
  Require(runtime, counter != nullptr, "the managed variable has no address");
  Require(runtime, *counter == 5, "the managed variable's initial value is missing");
  *counter = 10;
  image.Launch(&stub, 1, 1, nullptr, arguments);
  runtime.Ok(RUNTIME_FUNCTION(runtime, cudaDeviceSynchronize)(), "cudaDeviceSynchronize");
  Require(runtime, *counter == 13, "host and device see different variables");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || (std::strcmp(argv[1], "kernels") != 0 && std::strcmp(argv[1], "managed") != 0)) {
    std::fprintf(stderr, "usage: programs kernels|managed IMAGES VERSION=PATH...\n");
    return 2;
  }
  const std::string part = argv[1];
  const std::string images = argv[2];
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (int i = 3; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string path = argument.substr(equals + 1);
    if (access(path.c_str(), R_OK) != 0) {
      std::printf("skipped: there is no %s; the test runtimes_fetch says why\n", path.c_str());
      return 77;
    }
    runtimes.push_back(std::make_unique<Runtime>(argument.substr(0, equals), path));
  }
  if (part == "managed") {
    for (const auto& runtime : runtimes) Managed(*runtime, images);
  } else {
    // All are registered before any is used, as by the constructors of libraries.
    std::vector<std::unique_ptr<Kernels>> all;
    for (const auto& runtime : runtimes) all.push_back(std::make_unique<Kernels>(*runtime, images));
    for (const auto& kernels : all) {
      Properties(kernels->runtime);
      Streams(*kernels);
      Symbols(*kernels);
      Functions(*kernels);
      Graphs(*kernels);
      Textures(kernels->runtime, images);
    }
    if (all.size() > 1) {
      Together(all);
    } else {
      Reset(*all.front());
    }
  }
  std::printf("PASS %s runtimes=%zu\n", part.c_str(), runtimes.size());
  return 0;
}
