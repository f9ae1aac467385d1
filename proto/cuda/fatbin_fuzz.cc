// SPDX-License-Identifier: Apache-2.0
// Feeds any bytes to the reader of images, as an executor and the software driver do with what a
// tenant sends. Each input lies in a block of exactly its size, so that AddressSanitizer sees a
// read past it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/image_check.h"
#include "proto/cuda/system_atomics.h"

namespace {

void Check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::make_unique<uint8_t[]>(size);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  (void)gpuloom::IsSoundLinkInput({bytes.get(), size},
                                  [](uint64_t bytes) { return bytes < 1 << 24; });
  gpuloom::Image image{};
  if (gpuloom::FindImage(bytes.get(), size, &image) != gpuloom::ImageError::kNone) return 0;
  Check(image.bytes == bytes.get() && image.size_bytes <= size);
  if (image.kind != gpuloom::ImageKind::kFatbin) {
    const bool is_cubin = image.kind == gpuloom::ImageKind::kElf;
    gpuloom::SystemAtomics().Add(
        is_cubin ? gpuloom::FatbinMemberKind::kElf : gpuloom::FatbinMemberKind::kPtx,
        {image.bytes, image.size_bytes});
    return 0;
  }
  gpuloom::FatbinReader reader(image.bytes, image.size_bytes);
  gpuloom::FatbinMember member{};
  size_t total = 0;
  while (reader.Next(&member)) {
    Check(member.payload >= image.bytes);
    const auto offset = static_cast<size_t>(member.payload - image.bytes);
    Check(offset <= image.size_bytes && member.payload_bytes <= image.size_bytes - offset);
    for (size_t i = 0; i < member.payload_bytes; ++i) total += member.payload[i];
  }
  volatile size_t seen = total;  // the reads must happen
  (void)seen;
  return 0;
}
