// SPDX-License-Identifier: Apache-2.0
// Handles of what was destroyed. A driver may not know them any more, so each case has a process
// of its own; what ends a process natively is no measure for us.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {

void WrongDestroyed(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  CUarray array = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr memory = 0;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  const auto stream_gone = [&] {
    (void)cu.cuStreamCreate(&stream, 0);
    (void)cu.cuStreamDestroy_v2(stream);
  };
  const auto event_gone = [&] {
    (void)cu.cuEventCreate(&event, 0);
    (void)cu.cuEventDestroy_v2(event);
  };
  c("cuStreamSynchronize", [&] {
    stream_gone();
    return cu.cuStreamSynchronize(stream);
  });
  c("cuStreamQuery", [&] {
    stream_gone();
    return cu.cuStreamQuery(stream);
  });
  c("cuStreamDestroy", [&] {
    stream_gone();
    return cu.cuStreamDestroy_v2(stream);
  });
  c("cuMemsetD8Async on a stream", [&] {
    (void)cu.cuMemAlloc_v2(&memory, 4096);
    stream_gone();
    return cu.cuMemsetD8Async(memory, 0, 16, stream);
  });
  c("cuEventRecord on a stream", [&] {
    (void)cu.cuEventCreate(&event, 0);
    stream_gone();
    return cu.cuEventRecord(event, stream);
  });
  c("cuStreamGetFlags", [&] {
    unsigned flags = 0;
    stream_gone();
    return cu.cuStreamGetFlags(stream, &flags);
  });
  c("cuEventQuery", [&] {
    event_gone();
    return cu.cuEventQuery(event);
  });
  c("cuEventSynchronize", [&] {
    event_gone();
    return cu.cuEventSynchronize(event);
  });
  c("cuEventRecord", [&] {
    event_gone();
    return cu.cuEventRecord(event, nullptr);
  });
  c("cuEventDestroy", [&] {
    event_gone();
    return cu.cuEventDestroy_v2(event);
  });
  c("cuStreamWaitEvent", [&] {
    event_gone();
    return cu.cuStreamWaitEvent(nullptr, event, 0);
  });
  c("cuModuleUnload", [&] {
    (void)cu.cuModuleLoadData(&module, kKernels);
    (void)cu.cuModuleUnload(module);
    return cu.cuModuleUnload(module);
  });
  c("cuModuleGetFunction", [&] {
    (void)cu.cuModuleLoadData(&module, kKernels);
    (void)cu.cuModuleUnload(module);
    return cu.cuModuleGetFunction(&function, module, "add");
  });
  c("cuLibraryUnload", [&] {
    (void)cu.cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
    (void)cu.cuLibraryUnload(library);
    return cu.cuLibraryUnload(library);
  });
  c("cuLibraryGetKernel", [&] {
    (void)cu.cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
    (void)cu.cuLibraryUnload(library);
    return cu.cuLibraryGetKernel(&kernel, library, "add");
  });
  c("cuGraphDestroy", [&] {
    (void)cu.cuGraphCreate(&graph, 0);
    (void)cu.cuGraphDestroy(graph);
    return cu.cuGraphDestroy(graph);
  });
  c("cuGraphAddEmptyNode", [&] {
    (void)cu.cuGraphCreate(&graph, 0);
    (void)cu.cuGraphDestroy(graph);
    return cu.cuGraphAddEmptyNode(&node, graph, nullptr, 0);
  });
  c("cuGraphLaunch", [&] {
    (void)cu.cuGraphCreate(&graph, 0);
    (void)cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
    (void)cu.cuGraphExecDestroy(exec);
    return cu.cuGraphLaunch(exec, nullptr);
  });
  c("cuGraphDestroyNode", [&] {
    (void)cu.cuGraphCreate(&graph, 0);
    (void)cu.cuGraphAddEmptyNode(&node, graph, nullptr, 0);
    (void)cu.cuGraphDestroyNode(node);
    return cu.cuGraphDestroyNode(node);
  });
  c("cuArrayDestroy", [&] {
    CUDA_ARRAY_DESCRIPTOR plain{};
    plain.Width = plain.Height = 16;
    plain.Format = CU_AD_FORMAT_FLOAT;
    plain.NumChannels = 1;
    (void)cu.cuArrayCreate_v2(&array, &plain);
    (void)cu.cuArrayDestroy(array);
    return cu.cuArrayDestroy(array);
  });
  c("cuMemPoolDestroy", [&] {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    (void)cu.cuMemPoolCreate(&pool, &props);
    (void)cu.cuMemPoolDestroy(pool);
    return cu.cuMemPoolDestroy(pool);
  });
}

}  // namespace gpuloom::conformance
