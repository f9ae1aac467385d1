// SPDX-License-Identifier: Apache-2.0
#include "agent/node/size.h"

#include <array>
#include <charconv>

namespace gpuloom {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};

// FormatSize takes the first that fits, so the larger ones come first, and those with a B before
// Kubernetes'.
constexpr std::array<Unit, 10> kUnits = {{{"TiB", 40},
                                          {"GiB", 30},
                                          {"MiB", 20},
                                          {"KiB", 10},
                                          {"Ti", 40},
                                          {"Gi", 30},
                                          {"Mi", 20},
                                          {"Ki", 10},
                                          {"B", 0},
                                          {"", 0}}};

// "KiB" where `unit` is one of the decimal ways to write it: k, K, kB, KB. Empty for anything else.
std::string BinaryUnit(std::string_view unit) {
  constexpr std::string_view kLetters = "KMGTk";
  if (unit.empty() || kLetters.find(unit[0]) == std::string_view::npos) return {};
  if (unit.size() > 1 && unit.substr(1) != "B") return {};
  return std::string(1, unit[0] == 'k' ? 'K' : unit[0]) + "iB";
}

}  // namespace

std::optional<uint64_t> ParseSize(std::string_view text, std::string* error) {
  uint64_t number = 0;
  const auto [end, result] = std::from_chars(text.data(), text.data() + text.size(), number);
  // All that follows the number: no blank is allowed between them.
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const std::string quoted = "'" + std::string(text) + "'";
  if (result == std::errc::result_out_of_range) {
    *error = "size " + quoted + " is too large";
    return std::nullopt;
  }
  if (result != std::errc()) {
    *error = quoted + " is not a size: write a whole number and a unit, like 8GiB";
    return std::nullopt;
  }
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    // Bits would be shifted out.
    if (known.shift > 0 && number >> (64 - known.shift) != 0) {
      *error = "size " + quoted + " is too large";
      return std::nullopt;
    }
    return number << known.shift;
  }
  if (const std::string binary = BinaryUnit(unit); !binary.empty()) {
    *error = "size " + quoted + ": write the binary unit, " + std::to_string(number) + binary;
  } else {
    *error = "size " + quoted + " has an unknown unit '" + std::string(unit) +
             "': use KiB, MiB, GiB or TiB";
  }
  return std::nullopt;
}

std::string FormatSize(uint64_t size_bytes) {
  // 0 is a multiple of every unit.
  if (size_bytes == 0) return "0";
  for (const Unit& unit : kUnits) {
    if (unit.shift == 0) break;
    if ((size_bytes & ((uint64_t{1} << unit.shift) - 1)) == 0) {
      return std::to_string(size_bytes >> unit.shift) + std::string(unit.name);
    }
  }
  return std::to_string(size_bytes) + "B";
}

}  // namespace gpuloom
