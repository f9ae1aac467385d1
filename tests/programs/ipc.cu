// SPDX-License-Identifier: Apache-2.0
// Memory and events of one process used by another: the parent makes them and sends handles through
// a pipe, the child opens them, reads, writes, and records.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

constexpr int kCount = 100'000;

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t parent_wrote, child_wrote;
};

__global__ void Add(int* values, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += by;
}

int Child(int handles_fd) {
  Program program("ipc child");
  Handles handles;
  program.Expect(read(handles_fd, &handles, sizeof(handles)) == sizeof(handles), "no handles came");
  int* values = nullptr;
  cudaEvent_t parent_wrote, child_wrote;
  void* opened = nullptr;
  program.Ok(cudaIpcOpenMemHandle(&opened, handles.memory, cudaIpcMemLazyEnablePeerAccess));
  values = static_cast<int*>(opened);
  program.Ok(cudaIpcOpenEventHandle(&parent_wrote, handles.parent_wrote));
  program.Ok(cudaIpcOpenEventHandle(&child_wrote, handles.child_wrote));
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamWaitEvent(stream, parent_wrote, 0));
  Add<<<(kCount + 255) / 256, 256, 0, stream>>>(values, kCount, 1000);
  program.Ok(cudaEventRecord(child_wrote, stream));
  std::vector<int> host(kCount);
  program.Ok(
      cudaMemcpyAsync(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  program.Ok(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) program.Expect(host[i] == 1007, "the child sees other values");
  program.Ok(cudaIpcCloseMemHandle(values));
  program.Ok(cudaEventDestroy(parent_wrote));
  program.Ok(cudaEventDestroy(child_wrote));
  return program.Finish("elements=%d", kCount);
}

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--child") == 0) return Child(std::atoi(argv[2]));
  Program program("ipc");
  int ends[2];
  program.Expect(pipe(ends) == 0, "pipe failed");
  // Before the parent's first CUDA call: a forked child may not use the parent's.
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char fd[16];
    std::snprintf(fd, sizeof(fd), "%d", ends[0]);
    execl("/proc/self/exe", argv[0], "--child", fd, nullptr);
    _exit(127);
  }
  close(ends[0]);
  int* values = nullptr;
  cudaEvent_t parent_wrote, child_wrote;
  constexpr unsigned kFlags = cudaEventDisableTiming | cudaEventInterprocess;
  program.Ok(cudaMalloc(&values, kCount * sizeof(int)));
  program.Ok(cudaMemset(values, 0, kCount * sizeof(int)));
  program.Ok(cudaEventCreateWithFlags(&parent_wrote, kFlags));
  program.Ok(cudaEventCreateWithFlags(&child_wrote, kFlags));
  Add<<<(kCount + 255) / 256, 256>>>(values, kCount, 7);
  program.Ok(cudaEventRecord(parent_wrote, nullptr));
  program.Ok(cudaDeviceSynchronize());
  Handles handles;
  program.Ok(cudaIpcGetMemHandle(&handles.memory, values));
  program.Ok(cudaIpcGetEventHandle(&handles.parent_wrote, parent_wrote));
  program.Ok(cudaIpcGetEventHandle(&handles.child_wrote, child_wrote));
  program.Expect(write(ends[1], &handles, sizeof(handles)) == sizeof(handles), "write failed");
  int status = 0;
  waitpid(child, &status, 0);
  program.Expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
  program.Ok(cudaEventSynchronize(child_wrote));
  std::vector<int> host(kCount);
  program.Ok(cudaMemcpy(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) program.Expect(host[i] == 1007, "the child's write is missing");
  program.Ok(cudaFree(values));
  return program.Finish("elements=%d", kCount);
}
