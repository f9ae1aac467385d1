// SPDX-License-Identifier: Apache-2.0
#include "agent/node/one_line.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gpuloom {
namespace {

constexpr std::string_view kMore = "…";
constexpr size_t kLongestPiece = 4;  // "\x1b"; a character of UTF-8 is not longer

// 0 behind the end, which continues no character.
uint8_t ByteAt(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
}

// Bytes of the character of UTF-8 that `text` begins with; 0 if it begins with none.
size_t CharacterBytes(std::string_view text, uint32_t* character) {
  const uint8_t first = ByteAt(text, 0);
  *character = first;
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  *character = first & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const uint8_t next = ByteAt(text, i);
    if ((next & 0xc0) != 0x80) return 0;
    *character = *character << 6 | (next & 0x3f);
  }
  // Written longer than needed, half of a pair of UTF-16, beyond the last.
  constexpr uint32_t kFirstOfLength[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_one = *character >= kFirstOfLength[bytes] && *character <= 0x10ffff &&
                      (*character < 0xd800 || *character > 0xdfff);
  return is_one ? bytes : 0;
}

// Characters that terminals obey instead of showing them: C0, DEL and C1 (U+009B begins a sequence as ESC [ does), new
// lines of Unicode, and those that turn the direction of what follows, which is another's text.
bool IsObeyed(uint32_t character) {
  const auto within = [character](uint32_t first, uint32_t last) {
    return character >= first && character <= last;
  };
  return character < 0x20 || within(0x7f, 0x9f) || character == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x2069);
}

// What `text` begins with as it is written: `*taken` bytes of it. Returns how many bytes that takes.
size_t Spell(std::string_view text, size_t* taken, char (&piece)[kLongestPiece]) {
  static constexpr char kHex[] = "0123456789abcdef";
  uint32_t character = 0;
  const size_t bytes = CharacterBytes(text, &character);
  if (bytes != 0 && !IsObeyed(character)) {
    std::memcpy(piece, text.data(), bytes);
    *taken = bytes;
    return bytes;
  }
  *taken = 1;
  const uint8_t byte = ByteAt(text, 0);
  piece[0] = '\\';
  piece[1] = 'n';
  if (byte == '\n') return 2;
  piece[1] = 'x';
  piece[2] = kHex[byte >> 4];
  piece[3] = kHex[byte & 15];
  return 4;
}

}  // namespace

size_t WriteOneLine(std::string_view text, char* out, size_t room_bytes) {
  const size_t most = room_bytes - kMore.size();
  size_t written = 0;
  while (!text.empty()) {
    char piece[kLongestPiece];
    size_t taken = 0;
    const size_t bytes = Spell(text, &taken, piece);
    // `most` has left room for the mark, so a text that fits exactly without it is cut as well.
    if (written + bytes > most) {
      std::memcpy(out + written, kMore.data(), kMore.size());
      return written + kMore.size();
    }
    std::memcpy(out + written, piece, bytes);
    written += bytes;
    text.remove_prefix(taken);
  }
  return written;
}

std::string OneLine(std::string_view text, size_t most_bytes) {
  std::string line(std::min(text.size() * kLongestPiece, most_bytes) + kMore.size(), '\0');
  line.resize(WriteOneLine(text, line.data(), line.size()));
  return line;
}

}  // namespace gpuloom
