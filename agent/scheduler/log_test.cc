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
  EXPECT_EQ(line, "gpuloom-scheduler: earlier lines were dropped");
  for (int lines = 0; std::getline(file, line); ++lines) {
    ASSERT_EQ(line.rfind("gpuloom-scheduler: ", 0), 0u) << line;
    last = line;
  }
  EXPECT_EQ(last, "gpuloom-scheduler: " + std::to_string(kLines - 1) + " " + rest);
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

TEST(LineBudget, SomeAtOnceThenOneInAWhileAndTheRestIsCounted) {
  control::LineBudget budget;
  uint64_t now_ns = 1'000'000'000'000;
  uint64_t left_out = 7;
  for (uint32_t i = 0; i < control::LineBudget::kAtOnce; ++i) {
    ASSERT_TRUE(budget.Take(now_ns, &left_out)) << i;
    EXPECT_EQ(left_out, 0u);
  }
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(budget.Take(now_ns, &left_out));
  now_ns += control::LineBudget::kRefillNs;
  ASSERT_TRUE(budget.Take(now_ns, &left_out));
  EXPECT_EQ(left_out, 1000u);
  EXPECT_FALSE(budget.Take(now_ns, &left_out));
  now_ns += 100 * control::LineBudget::kRefillNs;
  uint32_t lines = 0;
  while (budget.Take(now_ns, &left_out)) ++lines;
  EXPECT_EQ(lines, control::LineBudget::kAtOnce);
}

}  // namespace
}  // namespace gpuloom::scheduler
