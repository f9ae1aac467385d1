#include "agent/run/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom::run {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

std::optional<CommandLine> Parse(std::vector<std::string> arguments, int* exit_status) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "gpuloom");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), exit_status);
}

TEST(Size, BinaryUnitsInEveryUsualForm) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"512MiB", 512 * kMiB}, {"8GiB", 8 * kGiB},  {"2G", 2 * kGiB}, {"2Gi", 2 * kGiB},
      {"64K", 64 << 10},      {"1T", 1024 * kGiB}, {"0M", 0},
  };
  for (const auto& [text, expected] : sizes) {
    uint64_t size = 1;
    std::string error;
    EXPECT_TRUE(ParseSize(text, &size, &error)) << error;
    EXPECT_EQ(size, expected) << text;
  }
}

TEST(Size, MistakesSayWhatToWrite) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "no size"},
      {"GiB", "no size"},
      {"8", "no unit"},
      {"8GB", "write 8GiB"},
      {"8 GiB", "unknown unit"},
      {"8giB", "unknown unit"},
      {"8Gib", "unknown unit"},
      {"1.5G", "unknown unit"},
      {"-1G", "no size"},
      {"99999999999999999999G", "too large"},
      {"18446744073709551615K", "too large"},
  };
  for (const auto& [text, expected] : mistakes) {
    uint64_t size = 7;
    std::string error;
    EXPECT_FALSE(ParseSize(text, &size, &error)) << text;
    EXPECT_THAT(error, ::testing::HasSubstr(expected)) << text;
    EXPECT_EQ(size, 7u);
  }
}

TEST(CommandLine, TakesTheCommandAsItIs) {
  int status = -1;
  const auto line = Parse({"run", "--softgpu", "--slots", "3", "--memory", "8GiB", "--domain", "d",
                           "--", "python3", "-c", "print()", "--gpu", "x"},
                          &status);
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->softgpu);
  EXPECT_EQ(line->slots, 3);
  EXPECT_EQ(line->memory_bytes, 8 * kGiB);
  EXPECT_EQ(line->domain, "d");
  EXPECT_THAT(line->command, ::testing::ElementsAre("python3", "-c", "print()", "--gpu", "x"));
}

TEST(CommandLine, ASecondDashDashIsTheCommands) {
  int status = -1;
  const auto line = Parse({"run", "--", "env", "--", "true"}, &status);
  ASSERT_TRUE(line);
  EXPECT_THAT(line->command, ::testing::ElementsAre("env", "--", "true"));
}

TEST(CommandLine, NoDashDashIsNeededForACommandWithoutOptions) {
  int status = -1;
  const auto line = Parse({"run", "--gpu", "1", "nvidia-smi"}, &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->gpu, "1");
  EXPECT_THAT(line->command, ::testing::ElementsAre("nvidia-smi"));
}

TEST(CommandLine, MistakesEndWithStatusTwo) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"walk"},
                                             {"run"},
                                             {"run", "--"},
                                             {"run", "--bogus", "--", "true"},
                                             {"run", "--slots", "0", "--", "true"},
                                             {"run", "--slots", "11", "--", "true"},
                                             {"run", "--softgpu", "--gpu", "1", "--", "true"},
                                             {"run", "--memory", "8GB", "--", "true"},
                                             {"run", "--memory", "1K", "--", "true"},
                                             {"run", "--domain", "", "--", "true"}}) {
    int status = -1;
    EXPECT_FALSE(Parse(arguments, &status)) << ::testing::PrintToString(arguments);
    EXPECT_EQ(status, 2) << ::testing::PrintToString(arguments);
  }
}

}  // namespace
}  // namespace gpuloom::run
