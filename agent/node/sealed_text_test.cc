// SPDX-License-Identifier: Apache-2.0
#include "agent/node/sealed_text.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

Seal Unseal(const std::string& content, std::string* text) {
  int format = 0;
  return UnsealText(content, text, &format);
}

TEST(SealedText, IsFoundAgainAsItWas) {
  for (const std::string policy :
       {"", "defaults: {}\n", "a", "x\n# kept by gpuloom-agent, format 1: 1 bytes, sum 0\n"}) {
    std::string text;
    EXPECT_EQ(Unseal(SealText(policy), &text), Seal::kWhole);
    EXPECT_EQ(text, policy);
    EXPECT_LE(SealText(policy).size(), policy.size() + kMaxSealBytes);
  }
}

TEST(SealedText, HalfOfOneIsNone) {
  const std::string sealed = SealText("defaults: {weight: 50}\n");
  std::string text;
  for (size_t bytes = 0; bytes < sealed.size(); ++bytes) {
    EXPECT_EQ(Unseal(sealed.substr(0, bytes), &text), Seal::kDamaged) << bytes;
  }
  for (size_t at = 0; at < 20; ++at) {
    std::string damaged = sealed;
    damaged[at] ^= 1;
    EXPECT_EQ(Unseal(damaged, &text), Seal::kDamaged) << at;
  }
}

TEST(SealedText, ALaterReleasesFormIsSaidToBeOne) {
  std::string text;
  int format = 0;
  EXPECT_EQ(UnsealText("a\n# kept by gpuloom-agent, format 2: what it likes\n", &text, &format),
            Seal::kNewer);
  EXPECT_EQ(format, 2);
}

}  // namespace
}  // namespace gpuloom
