// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/ptx/image.h"

#include <algorithm>
#include <vector>

#include "agent/softgpu/ptx/link.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom::softgpu::ptx {
namespace {

std::string Fail(std::string* error, std::string_view why) {
  *error = why;
  return {};
}

// "sm_80, compute_100": what an image holds and cannot be run here.
void Note(std::string* held, std::string_view kind, uint32_t sm) {
  const std::string name = std::string(kind) + std::to_string(sm);
  if (held->find(name) != std::string::npos || held->size() > 200) return;
  if (!held->empty()) held->append(", ");
  held->append(name);
}

std::string FromFatbin(const Image& image, std::string* error) {
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member{};
  FatbinMember best{};
  bool found = false;
  std::string held;
  while (reader.Next(&member)) {
    if (member.kind == FatbinMemberKind::kPtx && member.sm <= kComputeTarget) {
      if (!found || member.sm > best.sm) best = member;
      found = true;
    } else if (member.kind == FatbinMemberKind::kPtx) {
      Note(&held, "compute_", member.sm);
    } else if (member.kind == FatbinMemberKind::kElf) {
      Note(&held, "sm_", member.sm);
    }
  }
  if (!found && reader.error() != ImageError::kNone) {
    return Fail(error, "fatbin: a member's header is broken or cut off");
  }
  if (!found) {
    std::string why =
        "fatbin: no PTX for compute_90 or lower, which is all that softgpu runs; it holds ";
    why.append(held.empty() ? "nothing" : held);
    return Fail(error, why.append(". Compile with -gencode arch=compute_90,code=compute_90"));
  }
  std::vector<uint8_t> text;
  std::string why;
  if (!UnpackMember(best, kMaxPtxBytes, &text, &why)) {
    return Fail(error, "fatbin: PTX for compute_" + std::to_string(best.sm) + ": " + why);
  }
  // Stored plainly, the text is followed by NULs up to the padding.
  const auto end = std::find(text.begin(), text.end(), uint8_t{0});
  if (end == text.begin()) return Fail(error, "fatbin: its PTX is empty");
  return std::string(text.begin(), end);
}

std::string FromImage(ImageError status, const Image& image, std::string* error) {
  switch (status) {
    case ImageError::kNone:
      break;
    case ImageError::kUnknownFormat:
      return Fail(error, "image: neither a fatbin, nor a cubin, nor PTX text");
    case ImageError::kBadHeader:
      return Fail(error, "image: its header contradicts itself");
    case ImageError::kTruncated:
      return Fail(error, "image: cut off before the end that its header names");
  }
  switch (image.kind) {
    case ImageKind::kFatbin:
      return FromFatbin(image, error);
    case ImageKind::kElf:
      return Fail(error,
                  "cubin: machine code without PTX, which softgpu cannot run. Compile with "
                  "-gencode arch=compute_90,code=compute_90");
    case ImageKind::kPtx:
      break;
  }
  if (image.size_bytes > kMaxPtxBytes) return Fail(error, "ptx: larger than 256 MiB");
  return std::string(reinterpret_cast<const char*>(image.bytes), image.size_bytes);
}

}  // namespace

std::string Extract(std::span<const std::byte> image, std::string* error) {
  Image found{};
  const ImageError status = FindImage(image.data(), image.size(), &found);
  return FromImage(status, found, error);
}

bool HoldsMachineCode(std::span<const std::byte> image) {
  Image found{};
  if (FindImage(image.data(), image.size(), &found) != ImageError::kNone ||
      found.kind != ImageKind::kFatbin) {
    return false;
  }
  FatbinReader reader(found.bytes, found.size_bytes);
  for (FatbinMember member{}; reader.Next(&member);) {
    if (member.kind == FatbinMemberKind::kElf && member.sm == kComputeTarget) return true;
  }
  return false;
}

std::string ExtractFromProgram(const void* image, std::string* error) {
  Image found{};
  const ImageError status = FindImage(image, &found);
  std::string text = FromImage(status, found, error);
  FatbinWrapper wrapper{};
  constexpr uint32_t kLinked = 2;
  if (!text.empty() || image == nullptr || !ReadWrapper(image, &wrapper) ||
      wrapper.version != kLinked || wrapper.extra == nullptr) {
    return text;
  }
  // Linked device code (-rdc=true) is machine code, or nothing; its parts may be PTX.
  std::vector<std::string> parts;
  for (auto part = static_cast<const void* const*>(wrapper.extra); *part != nullptr; ++part) {
    std::string part_text = ExtractFromProgram(*part, error);
    Image part_image{};
    if (!part_text.empty()) {
      parts.push_back(std::move(part_text));
    } else if (FindImage(*part, &part_image) != ImageError::kNone ||
               !HoldsMachineCode(
                   std::as_bytes(std::span(part_image.bytes, part_image.size_bytes)))) {
      return {};
    }
  }
  if (parts.empty()) return {};
  error->clear();
  return Link(parts);
}

}  // namespace gpuloom::softgpu::ptx
