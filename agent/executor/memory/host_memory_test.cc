// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "agent/executor/process/own_user.h"
#include "agent/executor/testing/child.h"
#include "proto/wire/regions.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kPage = wire::kPageBytes;
constexpr uint64_t kArenaBytes = 64 * kPage;
constexpr uint64_t kHole = 7;

// Every page of it exists but one.
class HostMemoryWithAHole : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.arena = channel::MakeSealedMemory("arena", kArenaBytes);
    ASSERT_TRUE(
        host_.mapping.Map(host_.arena.get(), kArenaBytes, channel::Mapping::Access::kReadWrite));
    host_.range = {reinterpret_cast<uint64_t>(host_.mapping.data()), kArenaBytes};
    std::memset(host_.mapping.data(), 1, kArenaBytes);
    ASSERT_EQ(fallocate(host_.arena.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        kHole * kPage, kPage),
              0);
  }
  bool Populated(uint64_t first_page, uint64_t end_page) const {
    return host_.Populated(host_.range.begin + first_page * kPage, (end_page - first_page) * kPage);
  }
  // 0, or which answer is wrong.
  int WrongAnswer() const {
    if (!Populated(0, kHole)) return 1;
    if (Populated(0, kHole + 1)) return 2;
    if (Populated(kHole, kHole + 1)) return 3;
    if (Populated(0, kArenaBytes / kPage)) return 4;
    if (!Populated(kHole + 1, kArenaBytes / kPage)) return 5;
    // Bytes at the border of pages.
    const uint64_t hole = host_.range.begin + kHole * kPage;
    if (!host_.Populated(hole - 2, 2) || host_.Populated(hole - 1, 2)) return 6;
    return host_.Populated(hole + kPage - 1, 2) || !host_.Populated(hole + kPage, 2) ? 7 : 0;
  }

  HostMemory host_;
};

TEST_F(HostMemoryWithAHole, IsNotPopulatedThere) { EXPECT_EQ(WrongAnswer(), 0); }

// The page would be charged to the node.
TEST_F(HostMemoryWithAHole, Malicious_IsNotWrittenThere) {
  const std::string text(2 * kPage, 'x');
  const uint64_t hole = host_.range.begin + kHole * kPage;
  EXPECT_TRUE(host_.Write(hole - kPage, text.data(), kPage));
  EXPECT_FALSE(host_.Write(hole - kPage, text.data(), 2 * kPage));
  EXPECT_FALSE(host_.Write(hole, text.data(), 1));
  EXPECT_FALSE(Populated(kHole, kHole + 1));
  EXPECT_TRUE(host_.Write(hole, text.data(), 0));
}

// Executors are neither root nor the arena's owner; tenants may be.
TEST_F(HostMemoryWithAHole, Malicious_ModeThatTakesTheExecutorsRights) {
  if (getuid() != 0) GTEST_SKIP() << "only root becomes others";
  ASSERT_EQ(fchmod(host_.arena.get(), 0), 0);
  EXPECT_EQ(InChild([this] {
              std::string error;
              if (!BecomeUser(2'000'000'017, {}, &error)) return 50;
              return WrongAnswer();
            }),
            0);
}

}  // namespace
}  // namespace gpuloom::executor
