#include "agent/one_line.h"

namespace gpuloom {

std::string OneLine(std::string_view text, size_t most_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    if (line.size() >= most_bytes) return line + "…";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 15];
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace gpuloom
