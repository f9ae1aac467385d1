// SPDX-License-Identifier: Apache-2.0
// fork: the child of a process that uses CUDA cannot use it and harms nobody; the child of one that
// has not begun works normally.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ void Increment(int* value) { ++*value; }

int RunKernel(int* result) {
  int* value;
  if (cudaMalloc(&value, sizeof(int)) != cudaSuccess) return 1;
  if (cudaMemset(value, 0, sizeof(int)) != cudaSuccess) return 2;
  Increment<<<1, 1>>>(value);
  if (cudaMemcpy(result, value, sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return 3;
  if (cudaFree(value) != cudaSuccess) return 4;
  return 0;
}

// The exit status of a child that runs one kernel, 0 when it succeeded. Ends by _exit, as a child
// that shares its parent's library state must; `clean` runs the exit handlers too.
int InChild(bool clean) {
  const pid_t child = fork();
  if (child == 0) {
    int result = 0;
    int status = RunKernel(&result);
    if (status == 0 && result != 1) status = 5;
    if (clean) std::exit(status);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

int main() {
  Program program("fork_child");
  program.Expect(InChild(true) == 0, "a child forked before CUDA's start failed");
  int result = 0;
  program.Expect(RunKernel(&result) == 0 && result == 1, "the parent failed before the fork");
  const int refused = InChild(false);
  program.Expect(refused >= 1 && refused <= 4, "a child forked after CUDA's start was not refused");
  program.Expect(RunKernel(&result) == 0 && result == 1, "the parent failed after the fork");
  program.Expect(InChild(false) == refused, "a second child behaved differently");
  return program.Finish("child=refused parent=unharmed");
}
