// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/in_force/policy_watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "agent/identity/kept_text.h"
#include "agent/testing/full_disk.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using Outcome = PolicyWatcher::Outcome;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class PolicyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "policyXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    kept_ = directory_ / "kept.yaml";
  }
  void TearDown() override { fs::remove_all(directory_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  std::string Read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // As the agent's next start makes it.
  std::unique_ptr<PolicyWatcher> Start() {
    auto watcher = std::make_unique<PolicyWatcher>(directory_ / "p.yaml", kept_);
    watcher->SetCapacities({{"GPU-1", 140 * kGiB, 6 * kGiB, 10, 0, "NVIDIA H200"},
                            {"GPU-2", 80 * kGiB, 6 * kGiB, 10, 1, "NVIDIA H100 80GB HBM3"}});
    return watcher;
  }
  static uint64_t SlotBytes(const std::unique_ptr<PolicyWatcher>& watcher) {
    return watcher->Current()->defaults.memory->value.slot_bytes;
  }

  fs::path directory_;
  fs::path kept_;
};

// As of a disk's error as the agent begins: its containers need not wait for who mends the file.
TEST_F(PolicyFile, AKeptPolicyThatCannotBeReadForAMomentIsReadAgain) {
  ASSERT_TRUE(KeepText(kept_, "defaults: {memory: 1GiB}").ok());
  const fs::path there = directory_ / "there";
  fs::rename(kept_, there);
  fs::create_symlink(kept_, kept_);
  Write("p.yaml", "defaults: {memory: much}");
  const auto watcher = Start();
  EXPECT_THAT(watcher->LoadFirst().reason, HasSubstr("no policy is in force"));
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_EQ(watcher->Current(), nullptr);
  fs::rename(there, kept_);
  const PolicyWatcher::LoadResult result = watcher->Reload();
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("the last good policy stays in force"));
  EXPECT_EQ(watcher->Trouble(), result.reason);
  EXPECT_EQ(SlotBytes(watcher), kGiB);
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
}

// The thread that looks at it does everything else, too.
TEST_F(PolicyFile, Malicious_APipeInItsPlaceIsNotWaitedFor) {
  Write("p.yaml", "defaults: {memory: 1GiB}");
  const auto watcher = Start();
  ASSERT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
  fs::remove(directory_ / "p.yaml");
  ASSERT_EQ(mkfifo((directory_ / "p.yaml").c_str(), 0600), 0);
  const PolicyWatcher::LoadResult result = watcher->Reload();
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("p.yaml: is not a file"));
  EXPECT_EQ(SlotBytes(watcher), kGiB);
}

TEST_F(PolicyFile, ABadFileKeepsTheOldPolicyAndSaysSoOnce) {
  Write("p.yaml", "defaults: {memory: 1GiB}");
  const auto watcher = Start();
  ASSERT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_EQ(watcher->Trouble(), "");
  EXPECT_EQ(watcher->Generation(), 1u);

  for (const char* bad : {"defaults: {memory: 1GB}", "defaults: {memory: 7 elephants}"}) {
    Write("p.yaml", bad);
    const PolicyWatcher::LoadResult result = watcher->Reload();
    EXPECT_EQ(result.outcome, Outcome::kRefused);
    EXPECT_THAT(result.reason, AllOf(HasSubstr("p.yaml:1:20: defaults.memory"),
                                     HasSubstr("the old policy stays in force")));
    EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
    EXPECT_EQ(watcher->Trouble(), result.reason) << "said once, but wrong until it is mended";
    EXPECT_EQ(SlotBytes(watcher), kGiB);
    EXPECT_EQ(watcher->Generation(), 1u);
  }

  fs::remove(directory_ / "p.yaml");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kRefused);
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_THAT(watcher->Trouble(), HasSubstr("No such file"));
  EXPECT_EQ(SlotBytes(watcher), kGiB);

  Write("p.yaml", "defaults: {memory: 2GiB}");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(SlotBytes(watcher), 2 * kGiB);
  EXPECT_EQ(watcher->Generation(), 2u);
  EXPECT_EQ(watcher->Trouble(), "");

  // Gone for a moment, and the same again.
  fs::rename(directory_ / "p.yaml", directory_ / "away");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kRefused);
  fs::rename(directory_ / "away", directory_ / "p.yaml");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_EQ(watcher->Trouble(), "");
}

// Whoever writes a file in place cuts it off first.
TEST_F(PolicyFile, AnEmptyFileKeepsTheOldPolicyAlsoOverAStart) {
  Write("p.yaml", "namespaces: {a: {deny: true}}");
  const auto watcher = Start();
  ASSERT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
  for (const char* empty : {"", "# namespaces: {a: {deny: true}}\n", "null\n"}) {
    Write("p.yaml", empty);
    const PolicyWatcher::LoadResult result = watcher->Reload();
    EXPECT_EQ(result.outcome, Outcome::kRefused) << empty;
    EXPECT_THAT(result.reason, AllOf(HasSubstr("p.yaml:1:1: is empty; write {}"),
                                     HasSubstr("the old policy stays in force")));
    EXPECT_EQ(watcher->Trouble(), result.reason);
    EXPECT_THAT(watcher->Current()->namespaces, SizeIs(1));
    const auto restarted = Start();
    EXPECT_EQ(restarted->LoadFirst().outcome, Outcome::kRefused);
    EXPECT_THAT(restarted->Current()->namespaces, SizeIs(1));
  }
  EXPECT_FALSE(CheckPolicyFile(directory_ / "p.yaml").ok());
  Write("p.yaml", "{}");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_THAT(watcher->Current()->namespaces, IsEmpty());
  EXPECT_TRUE(CheckPolicyFile(directory_ / "p.yaml").ok());
}

// An agent of a former release took it. The node must not lose its slots by the upgrade.
TEST_F(PolicyFile, AnEmptyOneThatWasKeptStaysInForceWhileTheFileIsRefused) {
  for (const char* empty : {"", "null\n"}) {
    Write("p.yaml", empty);
    ASSERT_TRUE(KeepText(kept_, empty).ok());
    const auto watcher = Start();
    const PolicyWatcher::LoadResult result = watcher->LoadFirst();
    EXPECT_EQ(result.outcome, Outcome::kRefused);
    EXPECT_THAT(result.reason, AllOf(HasSubstr("is empty; write {}"),
                                     HasSubstr("the last good policy stays in force")));
    EXPECT_NE(watcher->Current(), nullptr);
  }
}

TEST_F(PolicyFile, FollowsAConfigMapsSymlinkSwap) {
  fs::create_directory(directory_ / "..v1");
  fs::create_directory(directory_ / "..v2");
  Write("..v1/p.yaml", "defaults: {memory: 1GiB}");
  Write("..v2/p.yaml", "defaults: {memory: 3GiB}");
  fs::create_directory_symlink("..v1", directory_ / "..data");
  fs::create_symlink("..data/p.yaml", directory_ / "p.yaml");
  const auto watcher = Start();
  ASSERT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
  fs::create_directory_symlink("..v2", directory_ / "..new");
  fs::rename(directory_ / "..new", directory_ / "..data");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(SlotBytes(watcher), 3 * kGiB);
}

TEST_F(PolicyFile, WithoutAFileTheDefaultsHoldAndNothingIsKept) {
  PolicyWatcher watcher("", kept_);
  EXPECT_EQ(watcher.Current(), nullptr);
  EXPECT_EQ(watcher.LoadFirst().outcome, Outcome::kReloaded);
  EXPECT_EQ(watcher.Reload().outcome, Outcome::kUnchanged);
  EXPECT_NE(watcher.Current(), nullptr);
  EXPECT_FALSE(fs::exists(kept_));
}

TEST_F(PolicyFile, TheLastGoodOneHoldsOverAStartWithABadFile) {
  for (const char* good : {"defaults: {memory: 1GiB}", "defaults: {memory: 2GiB}\n"}) {
    Write("p.yaml", good);
    const auto watcher = Start();
    ASSERT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
    Write("p.yaml", "defaults: {memory: 3 elephants}");
    ASSERT_EQ(watcher->Reload().outcome, Outcome::kRefused);
    EXPECT_EQ(*KeptText(kept_), good);
  }
  for (int restarts = 0; restarts < 2; ++restarts) {
    const auto watcher = Start();
    const PolicyWatcher::LoadResult result = watcher->LoadFirst();
    EXPECT_EQ(result.outcome, Outcome::kRefused);
    EXPECT_THAT(result.reason,
                AllOf(HasSubstr("p.yaml:1:20: defaults.memory: "),
                      HasSubstr("the last good policy stays in force"), HasSubstr(kept_.string())));
    EXPECT_EQ(watcher->Trouble(), result.reason);
    EXPECT_EQ(SlotBytes(watcher), 2 * kGiB);
  }
  fs::remove(directory_ / "p.yaml");
  const auto watcher = Start();
  EXPECT_EQ(watcher->LoadFirst().outcome, Outcome::kRefused);
  EXPECT_EQ(SlotBytes(watcher), 2 * kGiB);
  Write("p.yaml", "defaults: {memory: 4GiB}");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(watcher->Trouble(), "");
  EXPECT_EQ(*KeptText(kept_), "defaults: {memory: 4GiB}");
}

TEST_F(PolicyFile, WithoutALastGoodOneNoneIsInForceUntilTheFileIsRight) {
  Write("p.yaml", "defaults: {memroy: 1GiB}");
  const auto watcher = Start();
  const PolicyWatcher::LoadResult result = watcher->LoadFirst();
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_THAT(result.reason,
              AllOf(HasSubstr("did you mean memory?"), HasSubstr("there has been no good one"),
                    HasSubstr("offers no slots until")));
  EXPECT_EQ(watcher->Current(), nullptr);
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_EQ(watcher->Trouble(), result.reason);
  EXPECT_FALSE(fs::exists(kept_));
  Write("p.yaml", "defaults: {memory: 1GiB}");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(SlotBytes(watcher), kGiB);
}

TEST_F(PolicyFile, WhatOneGpuCannotKeepToIsInForceForTheOthersAndSaid) {
  Write("p.yaml",
        "defaults: {memory: 4GiB}\nnamespaces:\n"
        "  team-h200: {gpus: [NVIDIA H200], memory: 13GiB}\n");
  const auto watcher = Start();
  EXPECT_EQ(watcher->LoadFirst().outcome, Outcome::kReloaded);
  EXPECT_THAT(watcher->Impossible(), IsEmpty()) << "nobody asks the other GPU to keep it";
  EXPECT_EQ(watcher->ImpossibleText(), "");

  const char* partly = "defaults: {memory: 4GiB}\nnamespaces: {team-a: {memory: 13GiB}}\n";
  Write("p.yaml", partly);
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(watcher->Trouble(), "") << "the file is what is in force";
  EXPECT_EQ(SlotBytes(watcher), 4 * kGiB);
  EXPECT_EQ(*KeptText(kept_), partly);
  const auto impossible = watcher->Impossible();
  ASSERT_THAT(impossible, ElementsAre(Pair("GPU-2", SizeIs(1))));
  EXPECT_EQ(impossible.at("GPU-2")[0].key, "namespaces.team-a.memory");
  EXPECT_THAT(watcher->ImpossibleText(),
              AllOf(HasSubstr("p.yaml:2:31: namespaces.team-a.memory: 10 slots x 13GiB is more "
                              "than GPU GPU-2 has"),
                    Not(HasSubstr(" more:"))));

  Write("p.yaml", "defaults: {memory: 20GiB}\nnamespaces: {team-a: {memory: 13GiB}}\n");
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kReloaded);
  EXPECT_THAT(watcher->Impossible(),
              ElementsAre(Pair("GPU-1", SizeIs(1)), Pair("GPU-2", SizeIs(2))));
  EXPECT_THAT(watcher->ImpossibleText(), HasSubstr("GPU-1 has"));
  EXPECT_THAT(watcher->ImpossibleText(), HasSubstr("(and 2 more: gpuloom policy show)"));

  // Also at a first start, and from the last good one.
  fs::remove(kept_);
  EXPECT_EQ(Start()->LoadFirst().outcome, Outcome::kReloaded);
  Write("p.yaml", "no policy");
  const auto restarted = Start();
  EXPECT_EQ(restarted->LoadFirst().outcome, Outcome::kRefused);
  EXPECT_EQ(SlotBytes(restarted), 20 * kGiB);
  EXPECT_THAT(restarted->Impossible(), SizeIs(2));
  Write("p.yaml", "defaults: {memory: 2GiB}");
  EXPECT_EQ(restarted->Reload().outcome, Outcome::kReloaded);
  EXPECT_EQ(restarted->ImpossibleText(), "");
}

TEST_F(PolicyFile, ALastGoodOneThatCannotBeUsedIsNoPolicy) {
  ASSERT_TRUE(KeepText(kept_, "defaults: {memory: 1GiB}\nnamespaces: {a: {}}\n").ok());
  const std::string whole = Read(kept_);
  Write("p.yaml", "bad");
  struct Case {
    std::string content;
    const char* because;
  };
  std::string changed = whole;
  changed[whole.find('1')] = '2';
  std::string newer = whole;
  newer.replace(newer.find("format 1"), 8, "format 2");
  std::vector<Case> cases = {
      {changed, "kept.yaml is damaged"},
      {newer, "was written by a newer agent, in format 2"},
      {"", "kept.yaml is damaged"},
      {std::string(4096, '\0'), "kept.yaml is damaged"},
  };
  // Written half: most lengths are policies too, but other ones.
  for (size_t bytes = 1; bytes < whole.size(); bytes += 7) {
    cases.push_back({whole.substr(0, bytes), "kept.yaml is damaged"});
  }
  for (const Case& c : cases) {
    std::ofstream(kept_) << c.content;
    const auto watcher = Start();
    EXPECT_THAT(watcher->LoadFirst().reason, HasSubstr(c.because)) << c.content;
    EXPECT_EQ(watcher->Current(), nullptr) << c.content;
  }
  // A key that a newer agent knew.
  ASSERT_TRUE(KeepText(kept_, "defaults: {colour: blue}").ok());
  const auto newer_key = Start();
  EXPECT_THAT(newer_key->LoadFirst().reason, HasSubstr("is refused as well: " + kept_.string() +
                                                       ":1:12: defaults.colour: unknown"));
  EXPECT_EQ(newer_key->Current(), nullptr);
  // A good file makes it whole again.
  std::ofstream(kept_) << "half";
  Write("p.yaml", "defaults: {memory: 3GiB}");
  EXPECT_EQ(Start()->LoadFirst().outcome, Outcome::kReloaded);
  EXPECT_EQ(*KeptText(kept_), "defaults: {memory: 3GiB}");
}

TEST_F(PolicyFile, WhatCannotBeKeptIsInForceAllTheSameAndTriedAgain) {
  Write("p.yaml", "defaults: {memory: 1GiB}");
  ASSERT_EQ(Start()->LoadFirst().outcome, Outcome::kReloaded);
  Write("p.yaml", "defaults: {memory: 2GiB}");
  const auto watcher = Start();
  auto disk = std::make_optional<FullDisk>();
  const PolicyWatcher::LoadResult result = watcher->LoadFirst();
  const PolicyWatcher::LoadResult again = watcher->Reload();
  disk.reset();
  EXPECT_EQ(result.outcome, Outcome::kReloaded);
  EXPECT_THAT(result.not_kept, HasSubstr("policy: cannot be kept for the next start: state: "));
  EXPECT_EQ(SlotBytes(watcher), 2 * kGiB);
  EXPECT_EQ(watcher->Trouble(), "");
  EXPECT_EQ(again.not_kept, "") << "said once";
  EXPECT_EQ(*KeptText(kept_), "defaults: {memory: 1GiB}") << "the earlier one still lies there";
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 2) << "and nothing half written";
  EXPECT_EQ(watcher->Reload().outcome, Outcome::kUnchanged);
  EXPECT_EQ(*KeptText(kept_), "defaults: {memory: 2GiB}");
}

TEST_F(PolicyFile, AMissingFolderToKeepItInIsToldOnce) {
  Write("p.yaml", "defaults: {memory: 1GiB}");
  kept_ = directory_ / "none" / "kept.yaml";
  const auto watcher = Start();
  EXPECT_THAT(watcher->LoadFirst().not_kept, HasSubstr(kept_.string() + ": open: "));
  EXPECT_EQ(watcher->Reload().not_kept, "");
  EXPECT_EQ(SlotBytes(watcher), kGiB);
}

TEST_F(PolicyFile, WhatIsKeptIsTheTextToTheByte) {
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("defaults:\n"),
        std::string("# kept by gpuloom-agent, format 1"), std::string("a\0b", 3)}) {
    ASSERT_TRUE(KeepText(kept_, text).ok());
    EXPECT_EQ(*KeptText(kept_), text);
  }
  const std::string sealed = Read(kept_);
  ASSERT_TRUE(KeepText(kept_, sealed).ok());
  EXPECT_EQ(*KeptText(kept_), sealed);
  EXPECT_TRUE(absl::IsNotFound(KeptText(directory_ / "none").status()));
  struct stat info = {};
  ASSERT_EQ(stat(kept_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

}  // namespace
}  // namespace gpuloom
