// SPDX-License-Identifier: Apache-2.0
#include "agent/node/random_hex.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace gpuloom {

std::string RandomHex(size_t bytes) {
  unsigned char bits[256];
  // The number is always a constant of ours.
  if (bytes > sizeof(bits)) abort();
  // Up to 256 bytes never come short; a signal can interrupt only the wait for the first randomness after a boot.
  while (getrandom(bits, bytes, 0) != static_cast<ssize_t>(bytes)) {
    if (errno != EINTR) abort();
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < bytes; ++i) {
    hex += kDigits[bits[i] >> 4];
    hex += kDigits[bits[i] & 15];
  }
  return hex;
}

}  // namespace gpuloom
