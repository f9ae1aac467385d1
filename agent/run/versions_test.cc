// SPDX-License-Identifier: Apache-2.0
// What an agent leaves in its folder, and what schedulers say of themselves, as `gpuloom version` tells it.
#include "agent/run/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "agent/node/lock_file.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class VersionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = ::testing::TempDir() + "versionsXXXXXX";
    ASSERT_NE(mkdtemp(state_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(state_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(state_ + "/" + name).parent_path());
    std::ofstream(state_ + "/" + name) << text;
  }
  // Of a container that was given this release's.
  void WriteRecord(const std::string& name, const std::string& release) const {
    Write("records/" + name + ".yaml",
          "format: 1\nname: \"" + name + "\"\ngpu: g\ndevices: []\nshim: \"libgpuloom-" + release +
              "-0123456789abcdef.so\"\nnvml: \"libgpuloom-nvml-" + release +
              "-0123456789abcdef.so\"\ntrace: \"gpuloom-trace-" + release +
              "-0123456789abcdef\"\nbinding:\n  trace: 1\n  pod: \"shim: \\\"x\\\"\"\n");
  }
  Json Document(const std::vector<SchedulerFigures>& schedulers = {}) const {
    return Json::parse(FormatVersions(state_, schedulers, executor_, Format::kJson));
  }
  std::string Table(const std::vector<SchedulerFigures>& schedulers = {}) const {
    return FormatVersions(state_, schedulers, executor_, Format::kTable);
  }

  std::string state_;
  ExecutorProgram executor_;
};

TEST_F(VersionsTest, WithoutAnAgentItIsThisProgramAlone) {
  const Json document = Document();
  EXPECT_EQ(document["version"], kVersion);
  EXPECT_EQ(document["agents"], Json::array());
  EXPECT_EQ(document["libraries"], Json::array());
  EXPECT_THAT(Table(), ::testing::StartsWith(VersionLine("gpuloom") + "\n"));
  EXPECT_THAT(Table(), Not(HasSubstr("agent")));
}

TEST_F(VersionsTest, TheAgentInChargeAndWhoWasItLast) {
  {
    const LockFile lock = TakeLock(state_ + "/agent.lock", "1.2.3 (abc)");
    EXPECT_EQ(
        Document()["agents"],
        Json::array({{{"state_dir", state_}, {"version", "1.2.3 (abc)"}, {"in_charge", true}}}));
    EXPECT_THAT(Table(), HasSubstr("\nagent: 1.2.3 (abc)\n"));
  }
  EXPECT_EQ(Document()["agents"][0]["in_charge"], false);
  EXPECT_THAT(Table(), HasSubstr("\nagent: none is in charge; the last one was 1.2.3 (abc)\n"));
  const LockFile lock = TakeLock(state_ + "/agent.lock");
  EXPECT_TRUE(Document()["agents"][0]["version"].is_null());
  EXPECT_THAT(Table(), HasSubstr("\nagent: an older release, which does not say\n"));
}

TEST_F(VersionsTest, LibrariesByTheContainersThatHaveThem) {
  Write("shim/libgpuloom-1.3.0-fedcba9876543210.so", "");
  Write("shim/empty-i386.so", "");
  WriteRecord("a", "1.2.3");
  WriteRecord("b", "1.2.3");
  Write("records/c.yaml", "shim: libgpuloom\nnvml: \"\"\nshim: \"");
  const Json libraries = Document()["libraries"];
  ASSERT_EQ(libraries.size(), 4u) << libraries;
  EXPECT_EQ(libraries[0], Json({{"name", "gpuloom-trace"},
                                {"version", "1.2.3"},
                                {"file", "gpuloom-trace-1.2.3-0123456789abcdef"},
                                {"containers", 2}}));
  EXPECT_THAT(Table(),
              AllOf(HasSubstr("\nlibgpuloom of 2 containers: 1.2.3, libgpuloom-1.2.3-0123"),
                    HasSubstr("\nlibgpuloom of 0 containers: 1.3.0, libgpuloom-1.3.0-fedc"),
                    HasSubstr("\nlibgpuloom-nvml of 2 containers: 1.2.3, "),
                    HasSubstr("\ngpuloom-trace of 2 containers: 1.2.3, "), Not(HasSubstr("i386"))));
}

TEST_F(VersionsTest, TheInstalledExecutorAndItsCupti) {
  executor_.version = "1.2.3 (abc)";
  executor_.cupti = "libcupti.so.2025.3.1, API 130000, /c";
  EXPECT_THAT(
      Table(),
      HasSubstr(
          "\ninstalled executor: 1.2.3 (abc)\ninstalled CUPTI: libcupti.so.2025.3.1, API 130000"));
  EXPECT_EQ(Document()["executor"], Json({{"version", "1.2.3 (abc)"},
                                          {"trouble", nullptr},
                                          {"cupti", executor_.cupti},
                                          {"cupti_reason", nullptr}}));
  executor_ = {"", "/e: no such file", "", "it is off"};
  EXPECT_THAT(
      Table(),
      HasSubstr("\ninstalled executor: /e: no such file\ninstalled CUPTI: none; it is off\n"));
  EXPECT_EQ(Document()["executor"]["trouble"], "/e: no such file");
}

TEST_F(VersionsTest, SchedulersWithTheirDrivers) {
  SchedulerFigures older;
  older.folder = "/run/old";
  SchedulerFigures scheduler;
  scheduler.speaks_3_3 = true;
  scheduler.driver_version = 12020;
  control::SetText(scheduler.gpu.uuid, "GPU-1");
  control::SetText(scheduler.gpu.name, "H100");
  control::SetText(scheduler.gpu.version, "1.2.3\x1b[2J");
  EXPECT_THAT(Table({older, scheduler}),
              AllOf(HasSubstr("\nscheduler of old: an older release, before control 3.3\n"),
                    HasSubstr("\nscheduler of GPU-1: 1.2.3\\x1b[2J\n"),
                    HasSubstr("\ndriver of GPU-1: CUDA 12.2, H100\n")));
  const Json schedulers = Document({older, scheduler})["schedulers"];
  EXPECT_EQ(schedulers[0], Json({{"gpu", "old"}}));
  EXPECT_EQ(schedulers[1]["cuda"], "12.2");
  EXPECT_EQ(schedulers[1]["device"], "H100");
  scheduler.driver_version = 0;
  EXPECT_THAT(Table({scheduler}), HasSubstr("\ndriver of GPU-1: H100\n"));
}

TEST_F(VersionsTest, ExecutorsThatRunByTheirReleases) {
  SchedulerFigures scheduler;
  scheduler.speaks_3_3 = true;
  control::SetText(scheduler.gpu.uuid, "GPU-1");
  const auto add = [&scheduler](const std::string& name, const char* version, uint32_t executors) {
    control::DomainState& domain = scheduler.domains.emplace_back();
    control::SetText(domain.name, name.c_str());
    control::SetText(domain.executor_version, version);
    domain.executors = executors;
    if (*version == 0) return;
    domain.executor_has_cupti = name == "b" ? 0 : 1;
    control::SetText(domain.executor_cupti, name == "b" ? "it is off" : "libcupti.so.13");
  };
  add("a", "1.2.3 (new)", 1);
  add("b", "1.2.2 (old\x1b)", 1);
  add("c", "1.2.3 (new)", 1);
  add("silent", "", 1);
  add("without", "", 0);
  EXPECT_THAT(Table({scheduler}), HasSubstr("\nexecutors of GPU-1: 1.2.2 (old\\x1b), of b\n"
                                            "executors of GPU-1: 1.2.3 (new), of a, c\n"
                                            "CUPTI of GPU-1: libcupti.so.13, of a, c\n"
                                            "CUPTI of GPU-1: none; it is off, of b\n"));
  EXPECT_THAT(Table({scheduler}), Not(AnyOf(HasSubstr("silent"), HasSubstr("without"))));
  const Json executors = Document({scheduler})["schedulers"][0]["executors"];
  ASSERT_EQ(executors.size(), 4u);
  EXPECT_EQ(executors[0], Json({{"trust_domain", "a"},
                                {"version", "1.2.3 (new)"},
                                {"cupti", "libcupti.so.13"},
                                {"cupti_reason", nullptr}}));
  EXPECT_EQ(executors[1], Json({{"trust_domain", "b"},
                                {"version", "1.2.2 (old\\x1b)"},
                                {"cupti", nullptr},
                                {"cupti_reason", "it is off"}}));
  EXPECT_EQ(executors[3], Json({{"trust_domain", "silent"},
                                {"version", nullptr},
                                {"cupti", nullptr},
                                {"cupti_reason", nullptr}}));
  for (char name = 'd'; name < 'm'; ++name) add({name}, "1.2.3 (new)", 1);
  EXPECT_THAT(Table({scheduler}), HasSubstr(", of a, c, d, e, f, g, h, i, j, k and 1 more\n"));
}

}  // namespace
}  // namespace gpuloom::run
