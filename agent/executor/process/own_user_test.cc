// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/own_user.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/executor/testing/child.h"

namespace gpuloom::executor {
namespace {

TEST(Privileges, NoneAreLeftAndNoneCanBeGained) {
  EXPECT_EQ(InChild([] {
              std::string error;
              if (!GiveUpPrivileges(&error)) return 1;
              __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
              __user_cap_data_struct sets[2] = {};
              if (syscall(SYS_capget, &header, sets) != 0) return 2;
              for (const auto& set : sets) {
                if ((set.effective | set.permitted | set.inheritable) != 0) return 3;
              }
              int signal = 0;
              if (prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) != 0 || signal != SIGKILL) return 4;
              if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) return 5;
              return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 6;
            }),
            0);
}

TEST(BecomeUser, IsForGoodAndKeepsTheGroupsOfDevices) {
  if (getuid() != 0) GTEST_SKIP() << "only root becomes others";
  EXPECT_EQ(InChild([] {
              std::string error;
              constexpr unsigned kUser = 2'000'000'017;
              if (!BecomeUser(kUser, {44}, &error)) return 1;
              uid_t users[3];
              gid_t groups[3];
              if (getresuid(&users[0], &users[1], &users[2]) != 0 ||
                  getresgid(&groups[0], &groups[1], &groups[2]) != 0) {
                return 2;
              }
              for (int i = 0; i < 3; ++i) {
                if (users[i] != kUser || groups[i] != kUser) return 3;
              }
              gid_t beside[8];
              if (getgroups(8, beside) != 1 || beside[0] != 44) return 4;
              return setresuid(0, 0, 0) != 0 ? 0 : 5;
            }),
            0);
}

TEST(BecomeUser, WithoutTheRightSaysWhichIsMissing) {
  EXPECT_EQ(InChild([] {
              std::string error;
              if (getuid() == 0 && !BecomeUser(65534, {}, &error)) return 1;
              if (BecomeUser(2'000'000'017, {}, &error)) return 2;
              return error.find("CAP_SETGID") != std::string::npos ? 0 : 3;
            }),
            0);
}

TEST(DeviceGroups, AreThoseOfNodesThatNotEverybodyMayUse) {
  char name[] = "/tmp/gpuloom-devices-XXXXXX";
  const std::filesystem::path root = mkdtemp(name);
  std::filesystem::create_directory(root / "nvidia-caps");
  for (const auto& [file, mode] :
       {std::pair("nvidia0", 0660), std::pair("nvidiactl", 0666), std::pair("nvidia-uvm", 0600),
        std::pair("sda", 0660), std::pair("nvidia-caps/nvidia-cap1", 0660)}) {
    std::ofstream(root / file) << "x";
    chmod((root / file).c_str(), static_cast<mode_t>(mode));
  }
  EXPECT_EQ(DeviceGroups(root), std::vector<gid_t>{getgid()}) << "each once";
  if (getuid() == 0) {
    ASSERT_EQ(chown((root / "nvidia-caps/nvidia-cap1").c_str(), 0, 44), 0);
    ASSERT_EQ(chown((root / "nvidiactl").c_str(), 0, 45), 0);
    std::vector<gid_t> groups = DeviceGroups(root);
    std::sort(groups.begin(), groups.end());
    EXPECT_EQ(groups, (std::vector<gid_t>{0, 44}));
  }
  EXPECT_TRUE(DeviceGroups(root / "missing").empty());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace gpuloom::executor
