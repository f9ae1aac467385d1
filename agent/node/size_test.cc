// SPDX-License-Identifier: Apache-2.0
#include "agent/node/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(Size, BinaryUnits) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"8GiB", 8 * kGiB},
      {"2Gi", 2 * kGiB},
      {"512MiB", 512 * kMiB},
      {"512Mi", 512 * kMiB},
      {"16KiB", 16384},
      {"64Ki", 64 << 10},
      {"1TiB", 1024 * kGiB},
      {"1Ti", 1024 * kGiB},
      {"4096", 4096},
      {"7B", 7},
      {"0", 0},
      {"0MiB", 0},
  };
  for (const auto& [text, expected] : sizes) {
    std::string error;
    EXPECT_EQ(ParseSize(text, &error), expected) << text << ": " << error;
    EXPECT_EQ(error, "") << text;
  }
}

TEST(Size, TheLargest) {
  std::string error;
  EXPECT_EQ(ParseSize("18446744073709551615", &error), UINT64_MAX);
  EXPECT_EQ(ParseSize("16777215TiB", &error), uint64_t{16777215} << 40);
  EXPECT_EQ(ParseSize("16777216TiB", &error), std::nullopt);
}

TEST(Size, MistakesNameTheTextAndWhatToWrite) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "'' is not a size: write a whole number and a unit, like 8GiB"},
      {"GiB", "'GiB' is not a size"},
      {"-1GiB", "'-1GiB' is not a size"},
      {"8G", "size '8G': write the binary unit, 8GiB"},
      {"8GB", "size '8GB': write the binary unit, 8GiB"},
      {"8K", "size '8K': write the binary unit, 8KiB"},
      {"8kB", "size '8kB': write the binary unit, 8KiB"},
      {"8 GiB", "size '8 GiB' has an unknown unit ' GiB': use KiB, MiB, GiB or TiB"},
      {"8gib", "unknown unit 'gib'"},
      {"8Gib", "unknown unit 'Gib'"},
      {"8kiB", "unknown unit 'kiB'"},
      {"1.5GiB", "unknown unit '.5GiB'"},
      {"1e9", "unknown unit 'e9'"},
      {"99999999999TiB", "size '99999999999TiB' is too large"},
      {"99999999999999999999999", "is too large"},
  };
  for (const auto& [text, expected] : mistakes) {
    std::string error;
    EXPECT_EQ(ParseSize(text, &error), std::nullopt) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
  }
}

TEST(Size, IsWrittenAsItIsRead) {
  for (const char* text : {"8GiB", "1536KiB", "2TiB", "7B", "0"}) {
    std::string error;
    const auto size_bytes = ParseSize(text, &error);
    ASSERT_TRUE(size_bytes) << error;
    EXPECT_EQ(FormatSize(*size_bytes), text);
  }
}

}  // namespace
}  // namespace gpuloom
