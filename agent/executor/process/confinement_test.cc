// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/confinement.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/executor/process/sanitized.h"
#include "agent/executor/testing/child.h"

namespace gpuloom::executor {
namespace {

const Confinement::Mechanism* Find(const Confinement& confinement, const char* name) {
  for (const auto& mechanism : confinement.mechanisms) {
    if (std::strcmp(mechanism.name, name) == 0) return &mechanism;
  }
  return nullptr;
}

class ConfinementTest : public ::testing::Test {
 protected:
  ConfinementTest() {
    char name[] = "/tmp/gpuloom-confinement-XXXXXX";
    root_ = mkdtemp(name);
    // As /tmp is, which it lies in.
    chmod(root_.c_str(), 01777);
  }
  ~ConfinementTest() override { std::filesystem::remove_all(root_); }

  ConfinementWishes Wishes() const {
    ConfinementWishes wishes;
    wishes.user = getuid() == 0 ? 2'000'000'017 : 0;
    wishes.folder = root_ / "folder";
    wishes.driver = reinterpret_cast<const void*>(&getpid);
    return wishes;
  }

  std::filesystem::path root_;
};

TEST_F(ConfinementTest, AllOfItTogetherLeavesAProcessThatWorks) {
  EXPECT_EQ(InChild([&] {
              Confinement confinement;
              std::string error;
              if (!Confine(Wishes(), &confinement, &error)) return 1;
              // Twice, because the kernel may forget an entry of /proc that nobody holds.
              for (int i = 0; i < 2; ++i) {
                std::ifstream maps("/proc/self/maps");
                std::string line;
                if (!std::getline(maps, line)) return 2;
              }
              std::ofstream(root_ / "folder/file") << "x";
              if (!std::filesystem::exists(root_ / "folder/file")) return 3;
              bool ran = false;
              std::thread([&] { ran = true; }).join();
              if (!ran) return 4;
              std::string score;
              std::ifstream("/proc/self/oom_score_adj") >> score;
              if (score != "1000") return 5;
              if (getuid() == 0) return 6;
              if (kSanitized) return 0;
              return open("/tmp", O_RDONLY) < 0 ? 0 : 7;
            }),
            0);
}

TEST_F(ConfinementTest, WhatIsMissingIsSaidAndNoReasonToFail) {
  EXPECT_EQ(InChild([&] {
              Confinement confinement;
              std::string error;
              ConfinementWishes wishes = Wishes();
              wishes.user = 0;
              wishes.folder = root_ / "missing/folder";
              if (!Confine(wishes, &confinement, &error)) return 1;
              const auto* user = Find(confinement, "own user");
              const auto* folder = Find(confinement, "own folder");
              if (user == nullptr || user->is_had) return 2;
              if (folder == nullptr || folder->is_had || confinement.has_folder) return 3;
              return folder->detail.find("No such file") != std::string::npos ? 0 : 4;
            }),
            0);
}

TEST_F(ConfinementTest, AUserThatCannotBeHadIsAnError) {
  EXPECT_EQ(InChild([&] {
              if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
              Confinement confinement;
              std::string error;
              ConfinementWishes wishes = Wishes();
              wishes.user = 2'000'000'018;
              if (Confine(wishes, &confinement, &error)) return 2;
              return error.find("user 2000000018") != std::string::npos ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace gpuloom::executor
