#include "agent/policy/size.h"

#include <array>
#include <charconv>

#include "absl/status/status.h"
#include "agent/cat.h"

namespace gpuloom {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};

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

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, text.size() - (end - text.data()));
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(Cat("size '", text, "' is too large"));
  }
  if (error != std::errc()) {
    return absl::InvalidArgumentError(
        Cat("'", text, "' is not a size: write a whole number and a unit, like 8GiB"));
  }
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    if (known.shift > 0 && number >> (64 - known.shift) != 0) {
      return absl::InvalidArgumentError(Cat("size '", text, "' is too large"));
    }
    return number << known.shift;
  }
  for (const std::string_view letter : {"K", "M", "G", "T", "k"}) {
    if (unit == letter || unit == Cat(letter, "B")) {
      return absl::InvalidArgumentError(Cat("size '", text, "': write the binary unit, ", number,
                                            letter == "k" ? "K" : letter, "iB"));
    }
  }
  return absl::InvalidArgumentError(
      Cat("size '", text, "' has an unknown unit '", unit, "': use KiB, MiB, GiB or TiB"));
}

std::string FormatSize(uint64_t size_bytes) {
  if (size_bytes == 0) return "0";
  for (const Unit& unit : kUnits) {
    if (unit.shift == 0) break;
    if ((size_bytes & ((uint64_t{1} << unit.shift) - 1)) == 0) {
      return Cat(size_bytes >> unit.shift, unit.name);
    }
  }
  return Cat(size_bytes, "B");
}

}  // namespace gpuloom
