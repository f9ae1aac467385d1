// SPDX-License-Identifier: Apache-2.0
#include "agent/node/log.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "agent/node/line_budgets.h"
#include "agent/node/log_signals.h"

namespace gpuloom {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Format(const timespec& now, LogLevel level, std::string_view text) {
  char line[kMaxLogLineBytes];
  return std::string(line, FormatLogLine(now, level, "gpuloom-test", text, line));
}

// What `write` leaves in the log.
template <typename Function>
std::string Written(Function write) {
  ::testing::internal::CaptureStderr();
  write();
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogLine, HasTimeLevelProgramAndText) {
  EXPECT_EQ(Format({0, 0}, LogLevel::kInfo, "begins"),
            "1970-01-01T00:00:00.000Z info gpuloom-test: begins\n");
  EXPECT_EQ(Format({1'795'409'810, 123'999'999}, LogLevel::kWarning, "x"),
            "2026-11-23T04:56:50.123Z warning gpuloom-test: x\n");
  EXPECT_EQ(Format({1'709'251'199, 999'000'000}, LogLevel::kError, ""),
            "2024-02-29T23:59:59.999Z error gpuloom-test: \n")
      << "the last second of a leap day";
}

TEST(LogLine, Malicious_NobodysTextBeginsALine) {
  const std::string line =
      Format({0, 0}, LogLevel::kError, "refused: x\n1970-01-01T00:00:00.000Z info faked\r\x1b[2J");
  EXPECT_THAT(line, EndsWith("refused: x\\n1970-01-01T00:00:00.000Z info faked\\x0d\\x1b[2J\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(LogLine, Malicious_ALineIsCut) {
  const std::string line = Format({0, 0}, LogLevel::kInfo, std::string(1 << 20, 'x'));
  EXPECT_EQ(line.size(), kMaxLogLineBytes);
  EXPECT_THAT(line, EndsWith("x…\n"));
}

TEST(LogLine, IsReadAsItWasWritten) {
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    std::string line = Format({1, 0}, level, "a: b c");
    line.pop_back();
    const auto parsed = ParseLogLine(line);
    ASSERT_TRUE(parsed) << line;
    EXPECT_EQ(parsed->level, level);
    EXPECT_EQ(parsed->program, "gpuloom-test");
    EXPECT_EQ(parsed->text, "a: b c");
  }
}

TEST(LogLine, OtherLinesAreNone) {
  for (const char* line :
       {"", "x", "gpuloom-executor: x", "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z info",
        "1970-01-01T00:00:00.000Z loud gpuloom-test: x", "1970-01-01T00:00:00.000Z none a: x",
        "1970-01-01T00:00:00.000Z info gpuloom-test", "1970-01-01 00:00:00.000Z info a: x",
        "1970-01-01T00:00:00.00xZ info a: x", " info gpuloom-test: x"}) {
    EXPECT_FALSE(ParseLogLine(line)) << line;
  }
}

std::string FormatJson(std::string_view text) {
  char line[kMaxLogLineBytes];
  return std::string(line, FormatJsonLogLine({1'795'409'810, 123'999'999}, LogLevel::kWarning,
                                             "gpuloom-test", text, line));
}

constexpr char kJsonHead[] =
    "{\"time\":\"2026-11-23T04:56:50.123Z\",\"level\":\"warning\",\"program\":\"gpuloom-test\","
    "\"message\":\"";

TEST(JsonLogLine, HasTheSameFields) {
  EXPECT_EQ(FormatJson("begins"), std::string(kJsonHead) + "begins\"}\n");
  EXPECT_EQ(FormatJson(""), std::string(kJsonHead) + "\"}\n");
}

TEST(JsonLogLine, Malicious_NobodysTextEndsTheMessage) {
  EXPECT_EQ(FormatJson("pod x\",\"level\":\"error\\\n\x1b"),
            std::string(kJsonHead) + "pod x\\\",\\\"level\\\":\\\"error\\\\\\\\n\\\\x1b\"}\n");
}

TEST(JsonLogLine, Malicious_ALineIsCutAndStillAnObject) {
  for (const char c : {'x', '"', '\\', '\n'}) {
    for (const size_t bytes : {size_t{1900}, size_t{3980}, size_t{4000}, size_t{1} << 20}) {
      const std::string line = FormatJson(std::string(bytes, c));
      ASSERT_LE(line.size(), kMaxLogLineBytes);
      EXPECT_THAT(line, EndsWith("\"}\n"));
      // Whatever is escaped is whole: behind each backslash of JSON there is one more character.
      const std::string text =
          line.substr(sizeof(kJsonHead) - 1, line.size() - sizeof(kJsonHead) - 2);
      size_t i = 0;
      while (i < text.size()) i += text[i] == '\\' ? 2 : 1;
      EXPECT_EQ(i, text.size()) << c << " " << bytes;
      if (bytes > kMaxLogLineBytes) {
        EXPECT_GT(line.size(), kMaxLogLineBytes - 10) << "as much as there is room for";
      }
    }
  }
}

TEST(LogFormat, HasTwoNames) {
  EXPECT_EQ(ParseLogFormat("text"), LogFormat::kText);
  EXPECT_EQ(ParseLogFormat("json"), LogFormat::kJson);
  for (const char* other : {"", "JSON", "logfmt"}) EXPECT_FALSE(ParseLogFormat(other));
}

TEST(LogLevel, HasFourNames) {
  EXPECT_EQ(ParseLogLevel("error"), LogLevel::kError);
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("info"), LogLevel::kInfo);
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  for (const char* other : {"", "none", "warn", "Debug"}) EXPECT_FALSE(ParseLogLevel(other));
}

TEST(Log, ALineHasTheTimeOfNow) {
  const auto seconds = [](const std::string& line) { return line.substr(0, 19); };
  timespec before, after;
  clock_gettime(CLOCK_REALTIME, &before);
  const std::string line = Written([] { WriteLogLine("gpuloom-test", LogLevel::kInfo, "x"); });
  clock_gettime(CLOCK_REALTIME, &after);
  EXPECT_THAT(line, EndsWith("Z info gpuloom-test: x\n"));
  EXPECT_GE(seconds(line), seconds(Format(before, LogLevel::kInfo, "")));
  EXPECT_LE(seconds(line), seconds(Format(after, LogLevel::kInfo, "")));
}

TEST(Log, LinesOfThreadsDoNotMix) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  SetLogFd(ends[1]);
  std::string text;
  std::thread reader([&] {
    char piece[4096];
    for (ssize_t n; (n = read(ends[0], piece, sizeof(piece))) > 0;)
      text.append(piece, static_cast<size_t>(n));
  });
  constexpr int kThreads = 4, kLines = 200;
  std::vector<std::thread> writers;
  for (int i = 0; i < kThreads; ++i) {
    writers.emplace_back([i] {
      const std::string long_text(kMaxLogLineBytes, static_cast<char>('a' + i));
      for (int line = 0; line < kLines; ++line) WriteLogLine("t", LogLevel::kInfo, long_text);
    });
  }
  for (std::thread& writer : writers) writer.join();
  SetLogFd(STDERR_FILENO);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  int lines = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const auto line = ParseLogLine(std::string_view(text).substr(begin, end - begin));
    ASSERT_TRUE(line);
    const std::string_view letters = line->text.substr(0, line->text.size() - 3);  // the mark
    EXPECT_EQ(letters.find_first_not_of(letters[0]), std::string_view::npos);
    ++lines;
  }
  EXPECT_EQ(lines, kThreads * kLines);
}

TEST(Log, LessImportantLinesAreNotWritten) {
  SetLogLevel(LogLevel::kWarning);
  EXPECT_TRUE(IsLogged(LogLevel::kError));
  EXPECT_TRUE(IsLogged(LogLevel::kWarning));
  EXPECT_FALSE(IsLogged(LogLevel::kInfo));
  LineBudget budget;
  EXPECT_FALSE(TakeLogLine(&budget, "t", LogLevel::kInfo));
  SetLogLevel(LogLevel::kNone);
  EXPECT_FALSE(IsLogged(LogLevel::kError));
  SetLogLevel(LogLevel::kInfo);
  EXPECT_TRUE(TakeLogLine(&budget, "t", LogLevel::kInfo));
}

TEST(Log, CanSayMoreForAWhile) {
  SetLogLevel(LogLevel::kError);
  EXPECT_FALSE(LogsMore());
  EXPECT_THAT(Written([] { LogMore("gpuloom-test", true); }),
              HasSubstr("info gpuloom-test: log: everything from now on"));
  EXPECT_TRUE(LogsMore());
  EXPECT_TRUE(IsLogged(LogLevel::kDebug));
  EXPECT_THAT(Written([] { LogMore("gpuloom-test", false); }),
              HasSubstr("log: again from the level"));
  EXPECT_FALSE(IsLogged(LogLevel::kWarning)) << "as it was";
  SetLogLevel(LogLevel::kInfo);
}

TEST(Log, IsWrittenAsJsonWhereThatIsWanted) {
  SetLogFormat(LogFormat::kJson);
  const std::string line = Written([] { WriteLogLine("gpuloom-test", LogLevel::kInfo, "x"); });
  SetLogFormat(LogFormat::kText);
  EXPECT_THAT(line,
              EndsWith("\"level\":\"info\",\"program\":\"gpuloom-test\",\"message\":\"x\"}\n"));
}

TEST(LogSignals, SayMoreAndAgainLess) {
  HandleLogSignals("gpuloom-test");
  EXPECT_THAT(Written([] { raise(SIGUSR1); }), HasSubstr("everything from now on"));
  EXPECT_TRUE(IsLogged(LogLevel::kDebug));
  EXPECT_THAT(Written([] { raise(SIGHUP); }), HasSubstr("again from the level"));
  EXPECT_FALSE(IsLogged(LogLevel::kDebug));
  signal(SIGUSR1, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
}

TEST(Log, WhatABudgetLeavesOutIsSaidWithTheNextLine) {
  LineBudget budget;
  // When the machine started, so that lines have come back since.
  uint64_t left_out = 0;
  while (budget.Take(1, &left_out)) {
  }
  const std::string text =
      Written([&] { EXPECT_TRUE(TakeLogLine(&budget, "gpuloom-test", LogLevel::kError)); });
  EXPECT_THAT(
      text, EndsWith("error gpuloom-test: 1 lines about whom the next one names were left out\n"));
  EXPECT_EQ(Written([&] { EXPECT_TRUE(TakeLogLine(&budget, "t", LogLevel::kError)); }), "");
}

TEST(LineBudget, SomeAtOnceThenOneInAWhileAndTheRestIsCounted) {
  LineBudget budget;
  uint64_t now_ns = 1'000'000'000'000;
  uint64_t left_out = 7;
  for (uint32_t i = 0; i < LineBudget::kAtOnce; ++i) {
    ASSERT_TRUE(budget.Take(now_ns, &left_out)) << i;
    EXPECT_EQ(left_out, 0u);
  }
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(budget.Take(now_ns, &left_out));
  now_ns += LineBudget::kRefillNs;
  ASSERT_TRUE(budget.Take(now_ns, &left_out));
  EXPECT_EQ(left_out, 1000u);
  EXPECT_FALSE(budget.Take(now_ns, &left_out));
  now_ns += 100 * LineBudget::kRefillNs;
  uint32_t lines = 0;
  while (budget.Take(now_ns, &left_out)) ++lines;
  EXPECT_EQ(lines, LineBudget::kAtOnce);
}

TEST(LineBudgets, EachNameHasItsOwn) {
  LineBudgets budgets;
  uint64_t left_out = 0;
  while (budgets.Of("evil", 1).Take(1, &left_out)) {
  }
  EXPECT_TRUE(budgets.Of("honest", 1).Take(1, &left_out));
  EXPECT_FALSE(budgets.Of("evil", 1).Take(1, &left_out)) << "it is not forgotten";
}

TEST(LineBudgets, Malicious_NamesWithoutEndTakeNoMemoryAndSilenceNobody) {
  LineBudgets budgets;
  uint64_t now_ns = 1'000'000'000'000;
  uint64_t left_out = 0;
  ASSERT_TRUE(budgets.Of("honest", now_ns).Take(now_ns, &left_out));
  uint32_t lines = 0;
  for (size_t i = 1; i < 3 * LineBudgets::kMost; ++i) {
    lines += budgets.Of("evil-" + std::to_string(i), now_ns).Take(now_ns, &left_out);
  }
  EXPECT_EQ(budgets.size(), LineBudgets::kMost);
  EXPECT_EQ(lines, LineBudgets::kMost - 1 + LineBudget::kAtOnce) << "those beyond share one";
  EXPECT_TRUE(budgets.Of("honest", now_ns).Take(now_ns, &left_out));
  // All of them are silent for long enough.
  now_ns += LineBudget::kAtOnce * LineBudget::kRefillNs;
  EXPECT_TRUE(budgets.Of("newcomer", now_ns).Take(now_ns, &left_out));
  EXPECT_EQ(budgets.size(), 1u);
}

// It may come between a call and the look at its errno, and what it writes may fail.
TEST(LogSignals, LeaveErrnoAlone) {
  HandleLogSignals("gpuloom-test");
  const int log = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  errno = ENXIO;
  raise(LogSignal(true));
  const int afterwards = errno;
  raise(LogSignal(false));
  dup2(log, STDERR_FILENO);
  close(log);
  EXPECT_EQ(afterwards, ENXIO);
}

}  // namespace
}  // namespace gpuloom
