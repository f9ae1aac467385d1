// SPDX-License-Identifier: Apache-2.0
// File descriptors for something shared with other processes of the trust domain: an unnamed file
// that contains the executor's name for it. Programs pass them on like the real driver's, and
// a process that has one may open what it stands for. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

enum class DescriptorKind : uint64_t {
  kMemory = 0x6d656d206d6f6f6c,  // "loom mem"
  kPool = 0x6c6f70206d6f6f6c,    // "loom pol"
};

// A new descriptor, close-on-exec, owned by the caller.
[[nodiscard]] CUresult MakeDescriptor(DescriptorKind kind, const wire::Token& token, int* fd);
// As the real driver answers: NOT_SUPPORTED for a descriptor of the other kind, UNKNOWN for any
// other. The descriptor stays the caller's.
[[nodiscard]] CUresult ReadDescriptor(DescriptorKind kind, int fd, wire::Token* token);

}  // namespace gpuloom
