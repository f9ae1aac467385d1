// SPDX-License-Identifier: Apache-2.0
// Feeds any bytes to the extraction of PTX from images. Each input lies in a block of exactly its
// size, so that AddressSanitizer sees a read past it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "agent/softgpu/ptx/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::make_unique<std::byte[]>(size);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  std::string error;
  const std::string text = gpuloom::softgpu::ptx::Extract({bytes.get(), size}, {}, &error);
  // Either text or a reason.
  if (text.empty() == error.empty()) std::abort();
  return 0;
}
