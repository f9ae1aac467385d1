// SPDX-License-Identifier: Apache-2.0
#include "agent/node/agent_lock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "agent/node/lock_file.h"

namespace gpuloom {
namespace {

TEST(AgentLock, TellsAnAgentInChargeFromOneThatIsGoneAndFromNone) {
  std::string state = ::testing::TempDir() + "agent-lock-XXXXXX";
  ASSERT_NE(mkdtemp(state.data()), nullptr);
  EXPECT_FALSE(HasHadAgent(state));
  EXPECT_FALSE(LacksAgent(state));
  LockFile lock = TakeLock(state + "/agent.lock");
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  EXPECT_TRUE(HasHadAgent(state));
  EXPECT_FALSE(LacksAgent(state));
  lock.fd.Reset();
  EXPECT_TRUE(HasHadAgent(state));
  EXPECT_TRUE(LacksAgent(state));
  std::filesystem::remove_all(state);
}

}  // namespace
}  // namespace gpuloom
