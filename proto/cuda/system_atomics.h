// SPDX-License-Identifier: Apache-2.0
// Finds the kernels of an image that change memory by atomic operations of the system's scope (atom.sys and red.sys of
// PTX, which atomicAdd_system and cuda::atomic become): results may then depend on where that memory is
// (docs/design/managed-memory.md). Node side only.
//
// Pure, over bytes that a tenant made: nothing outside of them is read; linear in their length. Two kernels whose names
// have one hash count as one. Operations on shared memory, which no host thread reaches, do not count.
//
//   SystemAtomics atomics;
//   atomics.Add(kind, member);  // each member of a fatbin, unpacked
//   if (atomics.MayBeIn("histogram")) …
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

class SystemAtomics {
 public:
  // More such kernels than this, and all of the image count: nothing that is known has nearly as many.
  static constexpr size_t kMostKernels = 512;

  // A cubin or PTX text; what is neither, or cannot be read, has none.
  void Add(FatbinMemberKind kind, std::span<const uint8_t> member);

  // Errs only towards true, as far as the code is understood: every kernel may call a function that has them.
  bool MayBeIn(std::string_view kernel) const;

 private:
  void AddCubin(std::span<const uint8_t> bytes);
  void AddPtx(std::string_view text);
  void AddKernel(std::string_view name);

  bool all_ = false;
  std::vector<size_t> kernels_;  // hashes of their names, sorted
};

}  // namespace gpuloom
