// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/kept_policy.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

Kept Unseal(const std::string& content, std::string* text) {
  int format = 0;
  return UnsealPolicy(content, text, &format);
}

TEST(KeptPolicy, IsFoundAgainAsItWas) {
  for (const std::string policy :
       {"", "defaults: {}\n", "a", "x\n# kept by gpuloom-agent, format 1: 1 bytes, sum 0\n"}) {
    std::string text;
    EXPECT_EQ(Unseal(SealPolicy(policy), &text), Kept::kWhole);
    EXPECT_EQ(text, policy);
    EXPECT_LE(SealPolicy(policy).size(), policy.size() + kMaxSealBytes);
  }
}

TEST(KeptPolicy, HalfOfOneIsNone) {
  const std::string sealed = SealPolicy("defaults: {weight: 50}\n");
  std::string text;
  for (size_t bytes = 0; bytes < sealed.size(); ++bytes) {
    EXPECT_EQ(Unseal(sealed.substr(0, bytes), &text), Kept::kDamaged) << bytes;
  }
  for (size_t at = 0; at < 20; ++at) {
    std::string damaged = sealed;
    damaged[at] ^= 1;
    EXPECT_EQ(Unseal(damaged, &text), Kept::kDamaged) << at;
  }
}

TEST(KeptPolicy, ALaterReleasesFormIsSaidToBeOne) {
  std::string text;
  int format = 0;
  EXPECT_EQ(UnsealPolicy("a\n# kept by gpuloom-agent, format 2: what it likes\n", &text, &format),
            Kept::kNewer);
  EXPECT_EQ(format, 2);
}

}  // namespace
}  // namespace gpuloom
