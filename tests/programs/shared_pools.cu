// SPDX-License-Identifier: Apache-2.0
// A memory pool of one process used by another: the parent makes it for file descriptors, sends a
// descriptor of it and what names two of its allocations through a socket; the child imports them,
// reads and writes, and frees before the parent does.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

constexpr int kCount = 1'000'000;

struct Exported {
  cudaMemPoolPtrExportData numbers, sum;
};

__global__ void Fill(int* values, int n, int first) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = first + i;
}

__global__ void Sum(const int* values, int n, unsigned long long* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, static_cast<unsigned long long>(values[i]));
}

bool Send(int socket, int fd, const Exported& exported) {
  Exported copy = exported;
  iovec part = {&copy, sizeof(copy)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(socket, &message, 0) == static_cast<ssize_t>(sizeof(copy));
}

int Receive(int socket, Exported* exported) {
  iovec part = {exported, sizeof(*exported)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != static_cast<ssize_t>(sizeof(*exported))) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (header != nullptr) std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

int Child(int socket) {
  Program program("shared_pools child");
  Exported exported;
  const int fd = Receive(socket, &exported);
  program.Expect(fd >= 0, "no descriptor came");
  cudaMemPool_t pool;
  program.Ok(cudaMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
      cudaMemHandleTypePosixFileDescriptor, 0));
  close(fd);
  void *numbers, *sum;
  program.Ok(cudaMemPoolImportPointer(&numbers, pool, &exported.numbers));
  program.Ok(cudaMemPoolImportPointer(&sum, pool, &exported.sum));
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaMemsetAsync(sum, 0, sizeof(unsigned long long), stream));
  Sum<<<(kCount + 255) / 256, 256, 0, stream>>>(static_cast<int*>(numbers), kCount,
                                                static_cast<unsigned long long*>(sum));
  program.Ok(cudaGetLastError());
  Fill<<<(kCount + 255) / 256, 256, 0, stream>>>(static_cast<int*>(numbers), kCount, 5);
  program.Ok(cudaFreeAsync(numbers, stream));
  program.Ok(cudaFreeAsync(sum, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaMemPoolDestroy(pool));
  return program.Finish("elements=%d", kCount);
}

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--child") == 0) return Child(std::atoi(argv[2]));
  Program program("shared_pools");
  int ends[2];
  program.Expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair failed");
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
  int types = 0;
  program.Ok(cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
  program.Expect((types & cudaMemHandleTypePosixFileDescriptor) != 0, "pools cannot be shared");
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  program.Ok(cudaMemPoolCreate(&pool, &properties));
  cudaStream_t stream;
  program.Ok(cudaStreamCreate(&stream));
  void *numbers, *sum;
  program.Ok(cudaMallocFromPoolAsync(&numbers, kCount * sizeof(int), pool, stream));
  program.Ok(cudaMallocFromPoolAsync(&sum, sizeof(unsigned long long), pool, stream));
  Fill<<<(kCount + 255) / 256, 256, 0, stream>>>(static_cast<int*>(numbers), kCount, 0);
  program.Ok(cudaGetLastError());
  program.Ok(cudaStreamSynchronize(stream));
  int fd = -1;
  Exported exported;
  program.Ok(
      cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
  program.Ok(cudaMemPoolExportPointer(&exported.numbers, numbers));
  program.Ok(cudaMemPoolExportPointer(&exported.sum, sum));
  program.Expect(Send(ends[1], fd, exported), "the descriptor was not sent");
  close(fd);
  int status = 0;
  waitpid(child, &status, 0);
  program.Expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
  unsigned long long total = 0;
  program.Ok(cudaMemcpyAsync(&total, sum, sizeof(total), cudaMemcpyDeviceToHost, stream));
  std::vector<int> host(kCount);
  program.Ok(
      cudaMemcpyAsync(host.data(), numbers, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  program.Ok(cudaFreeAsync(numbers, stream));
  program.Ok(cudaFreeAsync(sum, stream));
  program.Ok(cudaStreamSynchronize(stream));
  constexpr unsigned long long kWanted = static_cast<unsigned long long>(kCount) * (kCount - 1) / 2;
  program.Expect(total == kWanted, "the child summed other values");
  for (int i = 0; i < kCount; ++i) {
    program.Expect(host[i] == 5 + i, "the child's write is missing");
  }
  program.Ok(cudaMemPoolDestroy(pool));
  return program.Finish("elements=%d sum=%llu", kCount, total);
}
