// SPDX-License-Identifier: Apache-2.0
// Where the parameters of an image's kernels lie, read from the image itself: what cuKernelGetParamInfo answers, for
// drivers before CUDA 12.4, which do not have it. Node side only.
//
// Pure, over bytes that a tenant made: nothing outside of them is read, and the memory kept is limited. The driver
// must find the same layout: a kernel of which the image says two different things, in two members or in two places
// of one, has none here. Offsets and sizes are bytes.
//
//   const KernelLayouts layouts = KernelLayouts::Of(image, limit_bytes);
//   if (const auto* params = layouts.Find("saxpy")) …
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

struct ParamLayout {
  uint32_t offset_bytes;
  uint32_t size_bytes;
  bool operator==(const ParamLayout&) const = default;
};

class KernelLayouts {
 public:
  // Reads the layouts of a fatbin, a cubin or PTX text. Kernels that would make bytes() exceed `limit_bytes` are left
  // out.
  static KernelLayouts Of(std::span<const uint8_t> image, uint64_t limit_bytes);

  // Null if the image does not have this kernel, or does not say how its parameters lie.
  const std::vector<ParamLayout>* Find(std::string_view name) const;
  // The names of the kernels, sorted.
  std::vector<std::string_view> Names() const;
  // The approximate memory that this object takes.
  uint64_t bytes() const { return bytes_; }

 private:
  void AddMember(FatbinMemberKind kind, std::span<const uint8_t> bytes);
  void AddCubin(std::span<const uint8_t> bytes);
  void AddPtx(std::string_view text);
  void Add(std::string_view name, std::optional<std::vector<ParamLayout>> params);

  // nullopt: the image contradicts itself about this kernel.
  std::map<std::string, std::optional<std::vector<ParamLayout>>, std::less<>> kernels_;
  uint64_t limit_bytes_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace gpuloom
