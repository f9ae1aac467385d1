// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/scheduler/executor.h"
#include "agent/scheduler/session.h"

namespace gpuloom::scheduler {
namespace {

// What the scheduler says in this line, at level info.
std::string Text(const std::string& line) {
  const auto parsed = ParseLogLine(line);
  const bool is_ours =
      parsed && parsed->program == "gpuloom-scheduler" && parsed->level == LogLevel::kInfo;
  return is_ours ? std::string(parsed->text) : "another line: " + line;
}

TEST(Log, AFileKeepsItsLastLines) {
  const std::string path = ::testing::TempDir() + "scheduler-log-" + std::to_string(getpid());
  const int before = dup(STDERR_FILENO);
  const int log = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(log, 0);
  ASSERT_EQ(dup2(log, STDERR_FILENO), STDERR_FILENO);
  constexpr int kLines = 60'000;
  const std::string rest(90, 'x');
  off_t largest = 0;
  for (int i = 0; i < kLines; ++i) {
    LogInfo(std::to_string(i) + " " + rest);
    struct stat status;
    ASSERT_EQ(fstat(log, &status), 0);
    largest = std::max(largest, status.st_size);
  }
  ASSERT_EQ(dup2(before, STDERR_FILENO), STDERR_FILENO);
  close(before);
  close(log);
  EXPECT_GT(largest, 3 << 20);
  EXPECT_LT(largest, 5 << 20);
  std::ifstream file(path);
  std::string line, last;
  std::getline(file, line);
  EXPECT_EQ(Text(line), "earlier lines were dropped");
  while (std::getline(file, line)) {
    last = Text(line);
    ASSERT_TRUE(last.ends_with(rest)) << line;
  }
  EXPECT_EQ(last, std::to_string(kLines - 1) + " " + rest);
  std::filesystem::remove(path);
}

TEST(Log, APidThatCannotBeKnownIsLeftOut) {
  EXPECT_EQ(ProcessText(12), "pid 12");
  EXPECT_EQ(ProcessText(0), "a process");
  Session session;
  session.id = 3;
  session.allocation = std::make_shared<Allocation>();
  EXPECT_EQ(session.Label().find("pid"), std::string::npos) << session.Label();
  session.tenant_pid = 12;
  EXPECT_NE(session.Label().find(", pid 12)"), std::string::npos) << session.Label();
  EXPECT_EQ(Executor().Label().find("pid"), std::string::npos) << Executor().Label();
}

}  // namespace
}  // namespace gpuloom::scheduler
