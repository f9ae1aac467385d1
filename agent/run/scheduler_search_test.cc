// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scheduler_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "proto/channel/socket.h"
#include "proto/control/connection.h"

namespace gpuloom::run {
namespace {

TEST(SchedulerSearch, FindsThemInAnAgentsFolderAndInThoseOfRuns) {
  char name[] = "/tmp/gpuloom-scheduler-search-XXXXXX";
  const std::filesystem::path root = mkdtemp(name);
  const auto listen = [&](const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    return channel::ListenAt((folder / control::kControlSocketName).c_str());
  };
  const channel::UniqueFd sockets[] = {listen(root / "agent/gpus/GPU-1"),
                                       listen(root / "agent/gpus/GPU-2"),
                                       listen(root / "runs/softgpu"), listen(root / "one")};
  // An agent's GPU should have one; `gpuloom run` leaves folders behind.
  std::filesystem::create_directories(root / "agent/gpus/GPU-3");
  std::filesystem::create_directories(root / "runs/GPU-3");
  std::filesystem::create_directories(root / "agent/records");
  std::string unseen;
  EXPECT_THAT(
      FindSchedulers({root / "agent", root / "runs", root / "one", root / "none"}, &unseen),
      ::testing::ElementsAre(root / "agent/gpus/GPU-1", root / "agent/gpus/GPU-2",
                             root / "agent/gpus/GPU-3", root / "one", root / "runs/softgpu"));
  EXPECT_EQ(unseen, "");
  std::filesystem::remove_all(root);
}

TEST(SchedulerSearch, AnAgentsFolderOfAGpuIsInItsStateDirectory) {
  EXPECT_TRUE(IsOfAgent("/state/gpus/GPU-1"));
  for (const char* folder : {"/state/gpus", "/state/gpus/", "/state", "/run/gpuloom/0", "gpus"}) {
    EXPECT_FALSE(IsOfAgent(folder)) << folder;
  }
}

TEST(SchedulerSearch, LooksWhereItIsTold) {
  EXPECT_THAT(SearchedFolders("/a"), ::testing::ElementsAre("/a"));
  const std::vector<std::string> places = SearchedFolders("");
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0], "/var/lib/gpuloom");
  EXPECT_EQ(places[1], "/run/gpuloom");
  setenv("GPULOOM_STATE_DIR", "/srv/gpuloom", 1);
  EXPECT_EQ(SearchedFolders("")[0], "/srv/gpuloom");
  EXPECT_THAT(SearchedFolders("/a"), ::testing::ElementsAre("/a"));
  unsetenv("GPULOOM_STATE_DIR");
  EXPECT_EQ(NoSchedulerFound({"/a", "/b"}, ""),
            "no scheduler is found in /a, /b: name the agent's state folder with --state-dir");
  EXPECT_EQ(NoSchedulerFound({"/a", "/b"}, "; /b is closed to this user"),
            "no scheduler is found in /a, /b; /b is closed to this user: run it as root");
}

}  // namespace
}  // namespace gpuloom::run
