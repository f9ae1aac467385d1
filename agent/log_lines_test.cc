#include "agent/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class LogLinesTest : public ::testing::Test {
 protected:
  LogLinesTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
    KeepLogLinesWhole();
  }
  ~LogLinesTest() override { spdlog::set_default_logger(before_); }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream text_;
};

TEST_F(LogLinesTest, Malicious_NobodysTextBeginsALine) {
  spdlog::warn("allocate refused: {}", "x\n[2026-01-01] [info] faked\r\x1b[2J");
  EXPECT_THAT(
      text_.str(),
      AllOf(HasSubstr("[warning] allocate refused: x\\n[2026-01-01] [info] faked\\x0d\\x1b["),
            EndsWith("\n"), Not(HasSubstr("\x1b"))));
  const std::string text = text_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(LogLinesTest, Malicious_ALineIsCut) {
  spdlog::info("{}", std::string(1 << 20, 'x'));
  EXPECT_LT(text_.str().size(), kMaxLogLineBytes + 100);
}

TEST_F(LogLinesTest, WordsOfAnyLanguageStay) {
  spdlog::info("Größe 3 … 漢字");
  EXPECT_THAT(text_.str(), HasSubstr("Größe 3 … 漢字"));
}

}  // namespace
}  // namespace gpuloom
