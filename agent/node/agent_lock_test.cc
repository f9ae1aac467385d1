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
  for (const char* name : {"/agent.next", "/agent.leaving"}) {
    LockFile other = TakeLock(state + name);
    ASSERT_TRUE(other.fd.valid()) << other.error;
    EXPECT_FALSE(LacksAgent(state)) << name << ": it is about to be in charge";
    other.fd.Reset();
    EXPECT_TRUE(LacksAgent(state)) << name;
  }
  std::filesystem::remove_all(state);
}

}  // namespace
}  // namespace gpuloom
