// SPDX-License-Identifier: Apache-2.0
// gpuloom-cuda-coverage: prints docs/cuda-coverage.md, what gpuloom answers of the CUDA driver API,
// from driver_api.def. One process, no input, no GPU; a test holds the committed page against the
// output.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/driver_api.h"

namespace gpuloom {
namespace {

// A section of the page, by the beginnings of functions' names.
struct Group {
  std::string_view title;
  std::vector<std::string_view> prefixes;  // the first group with a matching one takes the function
};

// Longer prefixes stand before the shorter ones they begin with.
const std::vector<Group>& Groups() {
  static const std::vector<Group> groups = {
      {"Start and errors",
       {"cuInit", "cuDriverGetVersion", "cuGetError", "cuGetProcAddress", "cuGetExportTable",
        "cuLogs"}},
      {"Green contexts and device resources",
       {"cuGreenCtx", "cuCtxFromGreenCtx", "cuDevResource", "cuDevSmResource",
        "cuDeviceGetDevResource", "cuCtxGetDevResource", "cuStreamGetGreenCtx"}},
      {"Graph memory on a device",
       {"cuDeviceGetGraphMem", "cuDeviceSetGraphMem", "cuDeviceGraphMem"}},
      {"Memory pools",
       {"cuMemPool", "cuMemAllocAsync", "cuMemAllocFromPool", "cuMemFreeAsync",
        "cuDeviceGetMemPool", "cuDeviceSetMemPool", "cuDeviceGetDefaultMemPool", "cuMemGetMemPool",
        "cuMemSetMemPool", "cuMemGetDefaultMemPool"}},
      {"Primary contexts", {"cuDevicePrimaryCtx"}},
      {"Peer access",
       {"cuDeviceCanAccessPeer", "cuDeviceGetP2P", "cuCtxEnablePeer", "cuCtxDisablePeer"}},
      {"Devices", {"cuDevice"}},
      {"Contexts", {"cuCtx"}},
      {"Modules and libraries", {"cuModule", "cuLibrary", "cuLink"}},
      {"Kernels and launches", {"cuKernel", "cuFunc", "cuLaunch", "cuParam", "cuOccupancy"}},
      {"Stream capture and graphs",
       {"cuGraphics", "cuGraph", "cuUserObject", "cuStreamBeginCapture", "cuStreamEndCapture",
        "cuStreamUpdateCapture", "cuStreamIsCapturing", "cuStreamGetCaptureInfo",
        "cuThreadExchange"}},
      {"Stream memory operations",
       {"cuStreamWaitValue", "cuStreamWriteValue", "cuStreamBatchMemOp"}},
      {"Streams", {"cuStream"}},
      {"Events", {"cuEvent"}},
      {"Virtual memory and sharing",
       {"cuMemAddress", "cuMemCreate", "cuMemExport", "cuMemGetAccess", "cuMemGetAllocation",
        "cuMemGetHandleForAddressRange", "cuMemImport", "cuMemMap", "cuMemRelease", "cuMemRetain",
        "cuMemSetAccess", "cuMemUnmap", "cuMulticast", "cuIpc"}},
      {"Managed memory",
       {"cuMemAllocManaged", "cuMemAdvise", "cuMemPrefetch", "cuMemDiscard", "cuMemRange"}},
      {"Copies of arrays, 2-D, 3-D, between devices and in batches",
       {"cuMemcpy2D", "cuMemcpy3D", "cuMemcpyAto", "cuMemcpyHtoA", "cuMemcpyDtoA", "cuMemcpyPeer",
        "cuMemcpyBatch", "cuMemsetD2D", "cuMemBatchDecompress"}},
      {"Copies and fills", {"cuMemcpy", "cuMemset"}},
      {"Memory", {"cuMem", "cuPointer"}},
      {"Arrays, textures, surfaces, tensor maps",
       {"cuArray", "cuMipmapped", "cuTex", "cuSurf", "cuTensorMap"}},
      {"External memory and semaphores",
       {"cuImportExternal", "cuExternal", "cuDestroyExternal", "cuSignalExternal", "cuWaitExternal",
        "cuFlushGPUDirect"}},
      {"Profiling, core dumps, checkpoints", {"cuProfiler", "cuCoredump", "cuCheckpoint"}},
  };
  return groups;
}

// Why a function is not supported. The first entry with a matching name or prefix counts; what none
// matches is shown without a reason: it has not been done.
struct Reason {
  std::string_view why;
  std::vector<std::string_view> prefixes;
  std::vector<std::string_view> names;
};

// Names stand here whole where a prefix would also match the later forms of a function.
const std::vector<Reason>& Reasons() {
  static const std::vector<Reason> reasons = {
      {"graphics interop: a tenant has no display device, and its memory lies in the executor",
       {"cuGraphics"},
       {}},
      {"external memory of other APIs would have to be imported into the executor unseen by the "
       "quota",
       {"cuImportExternal", "cuExternal", "cuDestroyExternal", "cuSignalExternal", "cuWaitExternal",
        "cuGraphAddExternal", "cuGraphExternal", "cuGraphExecExternal", "cuDeviceGetNvSciSync"},
       {}},
      {"a profiler counts the whole device: it would show other tenants", {"cuProfiler"}, {}},
      {"would hold the state of the executor, which is several tenants'",
       {"cuCheckpoint", "cuCoredump"},
       {}},
      {"multicast is between GPUs of one process, and a tenant has one; the attribute says 0",
       {"cuMulticast"},
       {}},
      {"host and device share no functions; the attribute says 0",
       {"cuLibraryGetUnifiedFunction"},
       {}},
      {"DMA-BUF and GPUDirect RDMA hand device memory to other hardware past the executor; the "
       "attributes say 0",
       {"cuFlushGPUDirect", "cuMemGetHandleForAddressRange"},
       {}},
      {"the driver's log names every call that fails and why; here each function answers by "
       "itself, "
       "and a place that sees all their failures would cost every call that succeeds",
       {"cuLogs"},
       {}},
      {"the form of CUDA 3, with 32-bit addresses and sizes; programs of later ones ask for _v2",
       {},
       {"cuArray3DCreate",
        "cuArray3DGetDescriptor",
        "cuArrayCreate",
        "cuArrayGetDescriptor",
        "cuMemAlloc",
        "cuMemAllocPitch",
        "cuMemFree",
        "cuMemGetAddressRange",
        "cuMemHostGetDevicePointer",
        "cuMemcpy2D",
        "cuMemcpy2DAsync",
        "cuMemcpy2DUnaligned",
        "cuMemcpy3D",
        "cuMemcpy3DAsync",
        "cuMemcpyAtoA",
        "cuMemcpyAtoD",
        "cuMemcpyAtoH",
        "cuMemcpyAtoHAsync",
        "cuMemcpyDtoA",
        "cuMemcpyDtoD",
        "cuMemcpyDtoDAsync",
        "cuMemcpyDtoH",
        "cuMemcpyDtoHAsync",
        "cuMemcpyHtoA",
        "cuMemcpyHtoAAsync",
        "cuMemcpyHtoD",
        "cuMemcpyHtoDAsync",
        "cuMemsetD16",
        "cuMemsetD2D16",
        "cuMemsetD2D32",
        "cuMemsetD2D8",
        "cuMemsetD32",
        "cuMemsetD8",
        "cuModuleGetGlobal",
        "cuTexRefGetAddress",
        "cuTexRefSetAddress",
        "cuTexRefSetAddress2D"}},
      {"sparse and deferred arrays are not offered; the attributes say 0", {"cuMemMapArray"}, {}},
      {"the attribute says that the device cannot decompress", {"cuMemBatchDecompress"}, {}},
      {"tells of changes of the device that the scheduler keeps from tenants",
       {"cuDeviceRegisterAsync", "cuDeviceUnregisterAsync"},
       {}},
      {"a Windows identity", {"cuDeviceGetLuid"}, {}},
  };
  return reasons;
}

// Empty: there is no reason but that nobody has done it.
std::string_view WhyNot(std::string_view name) {
  for (const Reason& reason : Reasons()) {
    for (const std::string_view exact : reason.names) {
      if (name == exact) return reason.why;
    }
    for (const std::string_view prefix : reason.prefixes) {
      if (name.starts_with(prefix)) return reason.why;
    }
  }
  return {};
}

// For what no group's prefix matches.
constexpr std::string_view kOther = "Other";
constexpr int kRooms = 3;
// In the order of the enumeration Room.
constexpr std::string_view kRoomNames[kRooms] = {"remote", "local", "unsupported"};

struct Section {
  std::string_view title;
  std::vector<const Symbol*> symbols;
  int counts[kRooms] = {};
};

// All functions, by group; groups of which there are none are left out.
std::vector<Section> Sort() {
  std::vector<Section> sections;
  for (const Group& group : Groups()) sections.push_back({group.title, {}, {}});
  sections.push_back({kOther, {}, {}});
  for (const Symbol& symbol : kSymbols) {
    // The place of the last section, for what no group takes.
    size_t index = Groups().size();
    for (size_t g = 0; g < Groups().size() && index == Groups().size(); ++g) {
      for (std::string_view prefix : Groups()[g].prefixes) {
        if (std::string_view(symbol.name).starts_with(prefix)) index = g;
      }
    }
    sections[index].symbols.push_back(&symbol);
    ++sections[index].counts[static_cast<int>(symbol.room)];
  }
  std::erase_if(sections, [](const Section& section) { return section.symbols.empty(); });
  return sections;
}

void Print() {
  std::printf(R"(# What gpuloom answers of the CUDA driver API

Printed by `gpuloom-cuda-coverage` from `proto/cuda/driver_api.def`; change that list, not this page. It names every
function that CUDA 13.0's `libcuda.so.1` exports, as gpuloom's library in a tenant's process treats it:

- **remote**: becomes a command to the executor, at least on the first call;
- **local**: answered inside the tenant's process, without a message;
- **unsupported**: returns `CUDA_ERROR_NOT_SUPPORTED`; the name is logged once and counted. A reason says that it stays so.

A name that is not on this page is unknown to `cuGetProcAddress`. `_ptds` and `_ptsz` mark the forms for per-thread
default streams, `_v2` and higher the later forms of a function; the plain name is then the oldest one.

| group | functions | remote | local | unsupported |
| --- | ---: | ---: | ---: | ---: |
)");
  const std::vector<Section> sections = Sort();
  int totals[kRooms] = {};
  for (const Section& section : sections) {
    std::printf("| %s | %zu | %d | %d | %d |\n", std::string(section.title).c_str(),
                section.symbols.size(), section.counts[0], section.counts[1], section.counts[2]);
    for (int room = 0; room < kRooms; ++room) totals[room] += section.counts[room];
  }
  std::printf("| **all** | **%zu** | **%d** | **%d** | **%d** |\n", kSymbolCount, totals[0],
              totals[1], totals[2]);
  for (const Section& section : sections) {
    std::printf("\n## %s\n\n| function | answered |\n| --- | --- |\n",
                std::string(section.title).c_str());
    for (const Symbol* symbol : section.symbols) {
      std::string answered(kRoomNames[static_cast<int>(symbol->room)]);
      const std::string_view why =
          symbol->room == Room::kUnsupported ? WhyNot(symbol->name) : std::string_view();
      if (!why.empty()) answered += ": " + std::string(why);
      std::printf("| `%s` | %s |\n", symbol->name, answered.c_str());
    }
  }
}

}  // namespace
}  // namespace gpuloom

int main() {
  gpuloom::Print();
  return 0;
}
