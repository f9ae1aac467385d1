// SPDX-License-Identifier: Apache-2.0
// Determines which part of an image is PTX that this device can run. Machine code is never run; it
// only counts as a reason why there is no PTX.
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
// Bounded: an image may have thousands of members.
void Note(std::string* held, std::string_view kind, uint32_t sm) {
  const std::string name = std::string(kind) + std::to_string(sm);
  if (held->find(name) != std::string::npos || held->size() > 200) return;
  if (!held->empty()) held->append(", ");
  held->append(name);
}

// "compute_90": what to compile for.
std::string Wanted(const Target& target) { return "compute_" + std::to_string(target.capability); }

// What a user can do about the error.
std::string Advice(const Target& target) {
  return ". Compile with -gencode arch=" + Wanted(target) + ",code=" + Wanted(target);
}

// The target that a text names, which a fatbin gives without its suffix.
bool NamesTargetOf(std::string_view text, const Target& target) {
  size_t at = text.find(".target");
  if (at != std::string_view::npos) at = text.find("sm_", at);
  if (at == std::string_view::npos) return true;  // the parser says what is wrong
  uint32_t number = 0;
  for (at += 3; at < text.size() && text[at] >= '0' && text[at] <= '9' && number < 10000; ++at) {
    number = number * 10 + static_cast<uint32_t>(text[at] - '0');
  }
  const char suffix = at < text.size() ? text[at] : ' ';
  return target.Runs(number, suffix == 'a'   ? TargetKind::kSpecific
                             : suffix == 'f' ? TargetKind::kFamily
                                             : TargetKind::kAll);
}

// Empty: it does not unpack, and *error says why.
std::string TextOf(const FatbinMember& member, std::string* error) {
  std::vector<uint8_t> text;
  std::string why;
  if (!UnpackMember(member, kMaxPtxBytes, &text, &why)) {
    return Fail(error, "fatbin: PTX for compute_" + std::to_string(member.sm) + ": " + why);
  }
  // Stored plainly, the text is followed by NULs up to the padding.
  const auto end = std::find(text.begin(), text.end(), uint8_t{0});
  if (end == text.begin()) return Fail(error, "fatbin: its PTX is empty");
  return std::string(text.begin(), end);
}

// The newest target that the device runs, as there the compiler could use most. A fatbin's header
// says compute_90 for sm_90 and sm_90a alike, so the text has the last word.
std::string FromFatbin(const Image& image, const Target& target, std::string* error) {
  FatbinReader reader(image.bytes, image.size_bytes);
  FatbinMember member{};
  std::vector<FatbinMember> candidates;
  std::string held;
  while (reader.Next(&member)) {
    if (member.kind == FatbinMemberKind::kPtx) Note(&held, "compute_", member.sm);
    if (member.kind == FatbinMemberKind::kElf) Note(&held, "sm_", member.sm);
    if (member.kind == FatbinMemberKind::kPtx && member.sm <= target.capability) {
      candidates.push_back(member);
    }
  }
  // Whole members before a broken header are good enough.
  if (candidates.empty() && reader.error() != ImageError::kNone) {
    return Fail(error, "fatbin: a member's header is broken or cut off");
  }
  // Stable: of equal targets the first one counts.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const FatbinMember& a, const FatbinMember& b) { return a.sm > b.sm; });
  for (const FatbinMember& candidate : candidates) {
    std::string text = TextOf(candidate, error);
    if (text.empty()) return {};
    if (NamesTargetOf(text, target)) return text;
  }
  std::string why = std::string(kNoPtx) + std::to_string(target.capability) +
                    " or lower, which is all that softgpu runs; it holds ";
  return Fail(error, why.append(held.empty() ? "nothing" : held).append(Advice(target)));
}

// A cubin alone cannot run; anything else that is no PTX has its own message.
std::string FromImage(ImageError status, const Image& image, const Target& target,
                      std::string* error) {
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
      return FromFatbin(image, target, error);
    case ImageKind::kElf:
      return Fail(error,
                  std::string(kOnlyMachineCode) + ", which softgpu cannot run" + Advice(target));
    case ImageKind::kPtx:
      break;
  }
  // The limit of what fatbins may unpack to, for plain text, too.
  if (image.size_bytes > kMaxPtxBytes) return Fail(error, "ptx: larger than 256 MiB");
  return std::string(reinterpret_cast<const char*>(image.bytes), image.size_bytes);
}

}  // namespace

std::string Extract(std::span<const std::byte> image, const Target& target, std::string* error) {
  Image found{};
  const ImageError status = FindImage(image.data(), image.size(), &found);
  return FromImage(status, found, target, error);
}

bool IsMachineCodeFor(uint32_t sm, const Target& target) {
  return sm <= target.capability && sm / 10 == target.capability / 10;
}

bool HoldsMachineCode(std::span<const std::byte> image, const Target& target) {
  Image found{};
  if (FindImage(image.data(), image.size(), &found) != ImageError::kNone ||
      found.kind != ImageKind::kFatbin) {
    return false;
  }
  FatbinReader reader(found.bytes, found.size_bytes);
  for (FatbinMember member{}; reader.Next(&member);) {
    if (member.kind == FatbinMemberKind::kElf && IsMachineCodeFor(member.sm, target)) return true;
  }
  return false;
}

// Whether machine code may stand in for PTX is decided for each part of linked code separately.
std::string ExtractFromProgram(const void* image, const Target& target, std::string* error) {
  Image found{};
  const ImageError status = FindImage(image, &found);
  std::string text = FromImage(status, found, target, error);
  FatbinWrapper wrapper{};
  constexpr uint32_t kLinked = 2;
  if (!text.empty() || image == nullptr || !ReadWrapper(image, &wrapper) ||
      wrapper.version != kLinked || wrapper.extra == nullptr) {
    return text;
  }
  // Linked device code (-rdc=true) is machine code, or nothing; its parts may be PTX.
  std::vector<std::string> parts;
  for (auto part = static_cast<const void* const*>(wrapper.extra); *part != nullptr; ++part) {
    std::string part_text = ExtractFromProgram(*part, target, error);
    // A part without PTX may be left out only if it is machine code, such as NVIDIA's device
    // runtime: then what remains is complete or fails by name. Otherwise the part is the program's
    // own, and its error is the answer.
    Image part_image{};
    if (!part_text.empty()) {
      parts.push_back(std::move(part_text));
    } else if (FindImage(*part, &part_image) != ImageError::kNone ||
               !HoldsMachineCode(std::as_bytes(std::span(part_image.bytes, part_image.size_bytes)),
                                 target)) {
      return {};
    }
  }
  // All parts are machine code: *error is that of the last.
  if (parts.empty()) return {};
  error->clear();
  return Link(parts);
}

}  // namespace gpuloom::softgpu::ptx
