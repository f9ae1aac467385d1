// SPDX-License-Identifier: Apache-2.0
// The worked example of docs/design/wire.md is what the code writes.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "proto/wire/ring_writer.h"

namespace gpuloom::wire {
namespace {

// The bytes of the table that begins with "offset  bytes": offset, then pairs of hex digits, then
// words.
std::vector<uint8_t> BytesOfTheDocument() {
  std::ifstream file(GPULOOM_WIRE_DOCUMENT);
  std::vector<uint8_t> bytes;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("offset  bytes", 0) == 0) {
      inside = true;
      continue;
    }
    if (!inside) continue;
    if (line.rfind("```", 0) == 0) break;
    std::istringstream columns(line);
    size_t offset = 0;
    columns >> offset;
    EXPECT_EQ(offset, bytes.size()) << line;
    constexpr size_t kFirstColumn = 8, kLastColumn = 57;
    std::istringstream hex(line.substr(kFirstColumn, kLastColumn - kFirstColumn));
    for (std::string pair; hex >> pair;) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(pair, nullptr, 16)));
    }
  }
  return bytes;
}

TEST(WireDocument, WorkedExampleIsWhatTheTenantWrites) {
  const auto commands = std::make_unique<CommandRegion>();
  const auto completions = std::make_unique<CompletionRegion>();
  RingWriter writer(commands.get(), completions.get());
  const uint64_t a = 0x5000'0000'0000, b = a + 0x61c00, sum = b + 0x61c00;
  const uint32_t n = 100'000;
  uint8_t* payload = nullptr;
  auto* launch = writer.Reserve<Launch>(28, &payload);
  ASSERT_NE(launch, nullptr);
  *launch = {kLegacyStream, KernelId{1}, {391, 1, 1}, {256, 1, 1}, 0, 0};
  std::memcpy(payload, &a, 8);
  std::memcpy(payload + 8, &b, 8);
  std::memcpy(payload + 16, &sum, 8);
  std::memcpy(payload + 24, &n, 4);
  EXPECT_EQ(writer.Commit(), Ticket{1});

  const std::vector<uint8_t> expected = BytesOfTheDocument();
  ASSERT_EQ(commands->head.tail, expected.size());
  EXPECT_EQ(std::vector<uint8_t>(commands->ring, commands->ring + expected.size()), expected);
}

}  // namespace
}  // namespace gpuloom::wire
