// SPDX-License-Identifier: Apache-2.0
#include "shim/session/shared_descriptor.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpuloom {
namespace {

// What the file holds. It is the program's to forge: the executor judges the token, which nobody
// can guess.
struct Text {
  DescriptorKind kind;
  wire::Token token;
};

}  // namespace

CUresult MakeDescriptor(DescriptorKind kind, const wire::Token& token, int* fd) {
  // glibc's memfd_create is newer than some containers'.
  const int made =
      static_cast<int>(syscall(SYS_memfd_create, "gpuloom-shared-memory", MFD_CLOEXEC));
  if (made < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const Text text = {kind, token};
  if (write(made, &text, sizeof(text)) != static_cast<ssize_t>(sizeof(text))) {
    close(made);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *fd = made;
  return CUDA_SUCCESS;
}

CUresult ReadDescriptor(DescriptorKind kind, int fd, wire::Token* token) {
  // pread, because processes that were given the same descriptor share its position.
  Text text = {};
  if (pread(fd, &text, sizeof(text), 0) != static_cast<ssize_t>(sizeof(text)) ||
      (text.kind != DescriptorKind::kMemory && text.kind != DescriptorKind::kPool)) {
    return CUDA_ERROR_UNKNOWN;
  }
  if (text.kind != kind) return CUDA_ERROR_NOT_SUPPORTED;
  *token = text.token;
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
