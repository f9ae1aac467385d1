// SPDX-License-Identifier: Apache-2.0
// What `gpuloom policy show` says of what an agent keeps and of the policy file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "agent/node/gpu_standing.h"
#include "agent/node/lock_file.h"
#include "agent/node/sealed_text.h"
#include "agent/policy/policy_file.h"
#include "agent/policy_command/policy_command.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PolicyShow : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "showXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    command_.kind = PolicyCommand::Kind::kShow;
    command_.state_dir = name;
    command_.file = name + "/policy.yaml";
    kept_ = name + "/" + kKeptPolicyName;
  }
  void TearDown() override { std::filesystem::remove_all(command_.state_dir); }

  // As an agent does, at one second past 2001-09-09T01:46:40Z.
  void Keep(const std::string& content) const {
    std::ofstream(kept_) << content;
    std::filesystem::last_write_time(kept_,
                                     std::filesystem::file_time_type::clock::from_sys(
                                         std::chrono::system_clock::from_time_t(1'000'000'001)));
  }
  void Write(const std::string& policy) const { std::ofstream(command_.file) << policy; }
  Json Document() {
    command_.format = Format::kJson;
    return Json::parse(AnswerAboutPolicy(command_).text);
  }

  PolicyCommand command_;
  std::string kept_;
};

TEST_F(PolicyShow, WhatIsInForceAndThatItIsTheFiles) {
  Keep(SealText("defaults: {weight: 50}"));
  Write("defaults: {weight: 50}");
  const Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kGood) << answer.trouble;
  EXPECT_EQ(answer.trouble, "");
  EXPECT_EQ(answer.text, "# in force since 2001-09-09T01:46:41Z, as the agent keeps it: " + kept_ +
                             "\n# " + command_.file + ": in force\ndefaults: {weight: 50}\n");
  EXPECT_EQ(Document(), Json({{"kept", kept_},
                              {"since", "2001-09-09T01:46:41Z"},
                              {"policy", "defaults: {weight: 50}"},
                              {"file", command_.file},
                              {"file_state", "in force"},
                              {"impossible", Json::array()}}));
}

TEST_F(PolicyShow, WithoutAnAgentNothingIsInForce) {
  Keep(SealText("defaults: {weight: 50}"));
  Write("defaults: {weight: 50}");
  LockFile lock = TakeLock(command_.state_dir + "/agent.lock");
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  EXPECT_EQ(AnswerAboutPolicy(command_).exit_status, kGood) << "one is in charge";
  lock.fd.Reset();
  Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble, StartsWith("gpuloom: no agent is in charge in "));
  EXPECT_THAT(
      answer.text,
      AllOf(StartsWith("# no agent is in charge; the last one kept, since 2001-09-09"),
            HasSubstr("\n# " + command_.file + ": same\n"), ::testing::Not(HasSubstr("in force"))));
  // Not that the file is somebody else's.
  Write("defaults: {weight: 60}");
  answer = AnswerAboutPolicy(command_);
  EXPECT_THAT(answer.trouble, AllOf(HasSubstr("the next one takes it when it starts"),
                                    ::testing::Not(HasSubstr("not the agent's file"))));
  EXPECT_EQ(Document()["file_state"], "differs");
  EXPECT_THAT(Document()["agent_trouble"], HasSubstr("no agent is in charge"));
}

TEST_F(PolicyShow, WhatTheNodesGpusCannotKeepTo) {
  Keep(SealText("defaults: {weight: 50}"));
  Write("defaults: {weight: 50}");
  GpuStanding standing;
  for (const char* gpu : {"GPU-2", "GPU-1"}) {
    std::filesystem::create_directories(FolderOfGpu(command_.state_dir, gpu));
    std::ofstream(StandingPath(FolderOfGpu(command_.state_dir, gpu))) << FormatStanding(standing);
    standing.impossible_rules = 3;
    standing.impossible = {"p.yaml:1:2: namespaces.a.memory: too much"};
  }
  const Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  const std::string reason =
      "impossible on GPU-1, which refuses its pods: p.yaml:1:2: namespaces.a.memory: too much\n";
  EXPECT_EQ(answer.trouble, "gpuloom: " + reason + "gpuloom: impossible on GPU-1: 2 more rules\n");
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr(": in force\n# " + reason + "# impossible on GPU-1: 2 more"),
                    EndsWith("\ndefaults: {weight: 50}\n")));
  const Json impossible = Document()["impossible"];
  ASSERT_EQ(impossible.size(), 1u);
  EXPECT_EQ(
      impossible[0],
      Json({{"gpu", "GPU-1"}, {"rules", 3}, {"reasons", Json::array({standing.impossible[0]})}}));
}

TEST_F(PolicyShow, AFileThatIsNotInForceIsSaidToBeAnother) {
  Keep(SealText("defaults:\n  weight: 50\n"));
  Write("defaults:\n  weight: 60\n");
  Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble,
              HasSubstr(command_.file + " differs from what is in force from line 2 on"));
  EXPECT_THAT(answer.text, AllOf(HasSubstr("weight: 50"), HasSubstr(": differs\n")));
  Write("defaults:\n  wait: 60\n");
  answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble, HasSubstr(command_.file + ":2:3: defaults.wait: unknown key"));
  EXPECT_THAT(answer.text, AllOf(HasSubstr("weight: 50"), HasSubstr(": wrong\n")));
  EXPECT_EQ(Document()["file_state"], "wrong");
  std::filesystem::remove(command_.file);
  answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble,
              AllOf(HasSubstr("No such file"), HasSubstr("gpuloom policy show FILE")));
  EXPECT_EQ(Document()["file_state"], "unreadable");
  EXPECT_EQ(Document()["policy"], "defaults:\n  weight: 50\n");
}

TEST_F(PolicyShow, AnEmptyFileThatAFormerReleaseTookIsWrongNow) {
  Keep(SealText(""));
  Write("");
  const Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble, HasSubstr(command_.file + ":1:1: is empty; write {}"));
  EXPECT_EQ(Document()["file_state"], "wrong");
}

TEST_F(PolicyShow, WithoutAKeptOneNothingIsClaimed) {
  Write("defaults: {weight: 50}");
  Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_EQ(answer.text, "");
  EXPECT_THAT(answer.trouble, AllOf(HasSubstr(kept_ + ": No such file"), HasSubstr("--state-dir")));
  EXPECT_EQ(Document()["policy"], nullptr);
  EXPECT_EQ(Document()["file_state"], "differs");

  command_.format = Format::kTable;
  Keep(SealText("defaults: {weight: 50}").substr(3));
  answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_EQ(answer.text, "");
  EXPECT_THAT(answer.trouble, HasSubstr(kept_ + " is damaged"));

  Keep("a\n# kept by gpuloom-agent, format 2: what it likes\n");
  EXPECT_THAT(AnswerAboutPolicy(command_).trouble, HasSubstr("later release"));
}

TEST_F(PolicyShow, APolicyAsLargeAsCanBeIsShownWhole) {
  const std::string large = "defaults: {weight: 50}\n#" + std::string((1 << 20) - 24, 'x');
  ASSERT_EQ(large.size(), size_t{1} << 20);
  Keep(SealText(large));
  Write(large);
  const Answer answer = AnswerAboutPolicy(command_);
  EXPECT_EQ(answer.exit_status, kGood) << answer.trouble;
  EXPECT_THAT(answer.text, StartsWith("# in force since "));
}

}  // namespace
}  // namespace gpuloom
