// SPDX-License-Identifier: Apache-2.0
#include "agent/node/gpu_uuid.h"

#include <cstring>

namespace gpuloom {

std::string FormatUuid(const uint8_t (&uuid)[16]) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    // 8-4-4-4-12 digits, as RFC 9562 writes them.
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[uuid[i] >> 4];
    text += kHex[uuid[i] & 15];
  }
  return text;
}

std::string FormatUuid(const char (&uuid)[16]) {
  uint8_t bytes[16];
  std::memcpy(bytes, uuid, sizeof(bytes));
  return FormatUuid(bytes);
}

}  // namespace gpuloom
