// SPDX-License-Identifier: Apache-2.0
#include "agent/node/one_line.h"

#include <algorithm>
#include <cstring>

namespace gpuloom {
namespace {

constexpr std::string_view kMore = "…";
constexpr size_t kLongestPiece = 4;  // "\x1b"; a character of UTF-8 is not longer

// One byte as it is written. Returns how many bytes that takes.
size_t Spell(char c, char (&piece)[kLongestPiece]) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  piece[0] = c;
  if (byte >= 0x20 && byte != 0x7f) return 1;
  piece[0] = '\\';
  piece[1] = 'n';
  if (c == '\n') return 2;
  piece[1] = 'x';
  piece[2] = kHex[byte >> 4];
  piece[3] = kHex[byte & 15];
  return 4;
}

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

size_t WriteOneLine(std::string_view text, char* out, size_t room_bytes) {
  const size_t most = room_bytes - kMore.size();
  size_t written = 0;
  size_t character = 0;  // where the last one begins in `out`
  for (const char c : text) {
    char piece[kLongestPiece];
    const size_t bytes = Spell(c, piece);
    if (!ContinuesCharacter(c)) character = written;
    if (written + bytes > most) {
      // A long run of continuation bytes is not a character.
      if (written - character < kLongestPiece) written = character;
      std::memcpy(out + written, kMore.data(), kMore.size());
      return written + kMore.size();
    }
    std::memcpy(out + written, piece, bytes);
    written += bytes;
  }
  return written;
}

std::string OneLine(std::string_view text, size_t most_bytes) {
  std::string line(std::min(text.size() * kLongestPiece, most_bytes) + kMore.size(), '\0');
  line.resize(WriteOneLine(text, line.data(), line.size()));
  return line;
}

}  // namespace gpuloom
