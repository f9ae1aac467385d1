// SPDX-License-Identifier: Apache-2.0
#include "agent/run/command_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>

namespace gpuloom::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A small command line with one of everything.
class CommandListTest : public ::testing::Test {
 protected:
  CommandListTest() {
    CLI::App* top = app_.add_subcommand("top", "Shows a pod's work: all.\nExample: gpuloom top");
    top->add_option("-o,--output", text_, "how: it's said")->check(CLI::IsMember({"json", "yaml"}));
    top->add_flag("--once", flag_, "only once");
    CLI::App* policy = app_.add_subcommand("policy", "Answers.");
    policy->add_subcommand("check", ".Judges \\ it.")
        ->add_option("file", text_, "the file")
        ->required();
    app_.add_subcommand("secret", "For us.")->group("");
    commands_ = ListCommands(app_);
  }

  CLI::App app_{"gpuloom: weaves."};
  std::string text_;
  bool flag_ = false;
  std::vector<CommandEntry> commands_;
};

TEST_F(CommandListTest, HasEveryCommandAndOption) {
  std::vector<std::string> paths;
  for (const CommandEntry& command : commands_) paths.push_back(command.path);
  EXPECT_THAT(paths, ElementsAre("", "top", "policy", "policy check"));
  EXPECT_THAT(commands_[0].subcommands, ElementsAre("top", "policy"));
  const CommandEntry& top = commands_[1];
  ASSERT_EQ(top.options.size(), 3u);
  EXPECT_THAT(top.options[0].names, ElementsAre("-h", "--help"));
  EXPECT_THAT(top.options[1].names, ElementsAre("-o", "--output"));
  EXPECT_EQ(top.options[1].value, "TEXT");
  EXPECT_THAT(top.options[1].choices, ElementsAre("json", "yaml"));
  EXPECT_EQ(top.options[1].about, "how: it's said");
  EXPECT_EQ(top.options[2].value, "");
  ASSERT_EQ(commands_[3].positionals.size(), 1u);
  EXPECT_THAT(commands_[3].positionals[0].names, ElementsAre("file"));
  EXPECT_THAT(commands_[3].positionals[0].choices, IsEmpty());
}

TEST_F(CommandListTest, ScriptsQuoteWhatIsSaid) {
  EXPECT_THAT(CompletionScript(commands_, "zsh"),
              AllOf(HasSubstr("'top:Shows a pod'\\''s work: all.'"),
                    HasSubstr("'--output:how: it'\\''s said'")));
  EXPECT_THAT(CompletionScript(commands_, "fish"),
              AllOf(HasSubstr("-a top -d 'Shows a pod\\'s work: all.'\n"),
                    HasSubstr("-a check -d '.Judges \\\\ it.'\n"),
                    HasSubstr(" -s o -l output -x -a 'json yaml' -d 'how: it\\'s said'\n")));
  EXPECT_THAT(CompletionScript(commands_, "bash"),
              AllOf(HasSubstr("\"policy check\""), Not(HasSubstr("secret"))));
}

TEST_F(CommandListTest, ManPagesSayWhatTheHelpSays) {
  const std::string page = ManPage(commands_, commands_[1]);
  EXPECT_THAT(page, HasSubstr(".SH NAME\ngpuloom\\-top \\- Shows a pod's work: all.\n"));
  EXPECT_THAT(
      page,
      HasSubstr(
          ".TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fBjson\\fR|\\fByaml\\fR\nhow: it's said\n"));
  EXPECT_THAT(page, HasSubstr("\nExample: gpuloom top\n"));
  EXPECT_THAT(
      ManPage(commands_, commands_[2]),
      HasSubstr("\\fBpolicy check\\fR\n\\&.Judges \\e it.\nSee gpuloom\\-policy\\-check(1).\n"));
  EXPECT_EQ(ManPageName(commands_[0]), "gpuloom");
  EXPECT_EQ(ManPageName(commands_[3]), "gpuloom-policy-check");
  EXPECT_THAT(ManPage(commands_, commands_[0]), Not(HasSubstr("secret")));
}

TEST_F(CommandListTest, AFolderThatCannotBeMadeIsSaid) {
  std::string error;
  EXPECT_FALSE(WriteManPages(commands_, "/proc/none", &error));
  EXPECT_THAT(error, HasSubstr("/proc/none/gpuloom.1"));
}

}  // namespace
}  // namespace gpuloom::run
