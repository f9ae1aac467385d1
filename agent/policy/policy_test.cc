// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/policy/testing/policies.h"

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(AutoReserve, TenContextsOrAnEighth) {
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 10), 6000 * kMiB);
  EXPECT_EQ(AutoReserveBytes(16 * kGiB, 10), 2 * kGiB);
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 1), 600 * kMiB);
}

TEST(BrokenPromise, NamesWhatIsMoreThanThereIsUnlessOvercommit) {
  const std::string text = "defaults:\n  memory: 13GiB\nnamespaces:\n  big:\n    memory: 14GiB\n";
  EXPECT_THAT(
      BrokenPromise(MustParse(text), H200()),
      HasSubstr("p.yaml:5:13: namespaces.big.memory: 10 slots x 14GiB is more than GPU GPU-1 has"));
  EXPECT_EQ(BrokenPromise(MustParse(text + "overcommit: true\n"), H200()), "");
  EXPECT_EQ(BrokenPromise(MustParse("defaults: {memory: 13GiB}"), H200()), "");
  // The reserve counts: 14 x 10 would fit without it.
  EXPECT_NE(BrokenPromise(MustParse("defaults: {memory: 14GiB}"), H200()), "");
}

}  // namespace
}  // namespace gpuloom
