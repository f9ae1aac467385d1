// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/policy_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/policy_command/command_line.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using Kind = PolicyCommand::Kind;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class PolicyQuestion : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "policyXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    command_.file = directory_ / "p.yaml";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Answer Ask(const std::string& policy) {
    std::ofstream(command_.file) << policy;
    return AnswerAboutPolicy(command_);
  }

  std::filesystem::path directory_;
  PolicyCommand command_;
};

TEST_F(PolicyQuestion, CheckSaysWhereAFileIsNoPolicy) {
  const Answer good = Ask("defaults: {memory: 1GiB}");
  EXPECT_EQ(good.exit_status, 0);
  EXPECT_EQ(good.text, command_.file + ": good\n");
  EXPECT_EQ(good.trouble, "");
  const Answer bad = Ask("defaults:\n  memroy: 1GiB\n");
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_EQ(bad.text, "");
  EXPECT_EQ(bad.trouble,
            command_.file + ":2:3: defaults.memroy: unknown key; did you mean memory?\n");
  command_.file += ".not";
  const Answer none = AnswerAboutPolicy(command_);
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.trouble, AllOf(HasSubstr("gpuloom: policy "), HasSubstr("No such file")));
}

TEST_F(PolicyQuestion, CheckNamesEveryMistake) {
  EXPECT_EQ(Ask("defaults:\n  priority: hgh\n  memroy: 1GiB\n").trouble,
            command_.file + ":2:13: defaults.priority: did you mean high?\n" + command_.file +
                ":3:3: defaults.memroy: unknown key; did you mean memory?\n");
  std::string many = "namespaces:\n";
  for (int i = 0; i != 100; ++i) many += "  a" + std::to_string(i) + ": {weight: 0}\n";
  const Answer bounded = Ask(many);
  EXPECT_EQ(bounded.exit_status, kNotGood);
  EXPECT_EQ(std::ranges::count(bounded.trouble, '\n'), 21);
  EXPECT_THAT(bounded.trouble, ::testing::EndsWith("\nand 80 more\n"));
  command_.format = Format::kJson;
  const Json document = Json::parse(Ask(many).text);
  EXPECT_EQ(document["errors"].size(), 20u);
  EXPECT_EQ(document["errors"][1],
            command_.file +
                ":3:16: namespaces.a1.weight: write a whole number from 1 to 1000, without quotes");
}

TEST_F(PolicyQuestion, CheckJudgesAllGpusThoughOneDoesNotFit) {
  command_.gpus = {{"", 40 * kGiB}, {"", 24 * kGiB}, {"", 141 * kGiB}};
  const Answer broken = Ask("defaults: {memory: 7GiB}\nnamespaces: {a: {memory: 4GiB}}");
  EXPECT_EQ(broken.exit_status, kNotGood);
  EXPECT_THAT(broken.trouble,
              AllOf(HasSubstr("defaults.memory: 10 slots x 7GiB is more than GPU of 40GiB has"),
                    HasSubstr("defaults.memory: 10 slots x 7GiB is more than GPU of 24GiB has"),
                    HasSubstr("namespaces.a.memory: 10 slots x 4GiB is more than GPU of 24GiB"),
                    Not(HasSubstr("141GiB"))));
  command_.reserve = "30GiB";
  EXPECT_THAT(Ask("{}").trouble, HasSubstr("GPU of 24GiB has 24GiB, --reserve keeps 30GiB"));
  EXPECT_EQ(Ask("{}").exit_status, kMistake);
  EXPECT_THAT(Ask("defaults: {memory: 2GiB}").trouble,
              AllOf(HasSubstr("2GiB is more than GPU of 40GiB has"),
                    HasSubstr("GPU of 24GiB has 24GiB, --reserve keeps 30GiB")));
}

// Not that it is so, and not that it is not: there is no answer.
TEST_F(PolicyQuestion, AFileThatIsNoPolicyIsAMistakeWhereItIsNotTheQuestion) {
  for (const auto kind : {PolicyCommand::Kind::kExplain, PolicyCommand::Kind::kSimulate}) {
    command_.kind = kind;
    const Answer answer = Ask("defaults: {wait: 7}");
    EXPECT_EQ(answer.exit_status, kMistake);
    EXPECT_THAT(answer.trouble, ::testing::StartsWith("gpuloom: " + command_.file + ":1:12: "));
  }
}

TEST_F(PolicyQuestion, CheckSaysWhatMultiprocessorsComeTo) {
  const std::string policy =
      "namespaces: {a: {smPercent: 25%, smReserved: 3%, pods: {p: {smPercent: 50%}}}, b: "
      "{smPercent: "
      "100%}}";
  EXPECT_EQ(Ask(policy).text,
            "namespaces.a.smPercent: 25% are 32 of 132 multiprocessors, in groups of 8\n"
            "namespaces.a.smReserved: 3% are 8 of 132 multiprocessors, in groups of 8\n"
            "namespaces.a.pods.p.smPercent: 50% are 64 of 132 multiprocessors, in groups of 8\n" +
                command_.file + ": good\n");
  command_.multiprocessors = 108;
  command_.multiprocessors_in_group = 4;
  EXPECT_THAT(Ask(policy).text, HasSubstr("25% are 24 of 108 multiprocessors, in groups of 4\n"));
}

// On an H100 or H200: 15 groups, of which one is left to those without a reservation.
TEST_F(PolicyQuestion, CheckSaysWhichReservationsNoGpuKeeps) {
  const struct {
    const char* policy;
    const char* key;  // where it is, and how it is called
    const char* says;
  } kept_nowhere[] = {
      {"defaults: {smReserved: 99%}", ":1:24: defaults.smReserved: 99% ", "write at most 90%"},
      {"namespaces: {a: {smReserved: 100%}}", ":1:30: namespaces.a.smReserved: 100% ",
       "none of 15 groups of 8 multiprocessors to others"},
      {"namespaces: {a: {smPercent: 25%, pods: {p: {smReserved: 25%}}}}",
       ":1:57: namespaces.a.pods.p.smReserved: 25% ",
       "none of 4 groups of 8 multiprocessors, which namespace a has, to its other containers, who "
       "keep one at least: write at most 24%, or raise namespaces.a.smPercent"},
      {"namespaces: {a: {smPercent: 6%}, '*': {pods: {p/main: {smReserved: 1%}}}}",
       ":1:68: namespaces.*.pods.p/main.smReserved: 1% ", "nothing is left to reserve"},
      {"namespaces: {a: {pods: {'p-*': {smReserved: 95%}}}}",
       ":1:45: namespaces.a.pods.p-*.smReserved: 95% ", "write at most 90%"},
  };
  for (const auto& row : kept_nowhere) {
    const Answer answer = Ask(row.policy);
    EXPECT_EQ(answer.exit_status, kNotGood) << row.policy;
    EXPECT_THAT(answer.trouble, ::testing::StartsWith(command_.file + row.key));
    EXPECT_THAT(answer.trouble, HasSubstr(row.says));
  }
  for (const char* kept : {"defaults: {smReserved: 90%}",
                           "namespaces: {a: {smPercent: 25%, pods: {p: {smReserved: 24%}}}}",
                           "namespaces: {a: {smReserved: 60%, trustDomain: blue}, b: {smReserved: "
                           "60%, trustDomain: red}}",
                           "namespaces: {a: {smReserved: 60%}, b: {smReserved: 60%}}",
                           "namespaces: {a: {deny: true, smReserved: 99%}}"}) {
    const Answer answer = Ask(kept);
    EXPECT_EQ(answer.exit_status, kGood) << kept;
    EXPECT_EQ(answer.trouble, "") << kept;
  }
  command_.multiprocessors = 7;
  EXPECT_EQ(Ask("defaults: {smReserved: 99%}").exit_status, kGood) << "it cannot be divided";
}

// The namespaces may be on different GPUs, so it is no error.
TEST_F(PolicyQuestion, CheckWarnsOfReservationsThatDoNotFitTogether) {
  const char* policy =
      "defaults: {trustDomain: node}\n"
      "namespaces: {a: {smReserved: 60%}, b: {smReserved: 60%}, c: {smReserved: 10%}}";
  const Answer answer = Ask(policy);
  EXPECT_EQ(answer.exit_status, kGood);
  EXPECT_THAT(answer.text, HasSubstr(command_.file + ": good\n"));
  EXPECT_THAT(answer.trouble, ::testing::StartsWith("warning: " + command_.file +
                                                    ":2:52: namespaces.b.smReserved: 60% of "));
  EXPECT_THAT(answer.trouble, HasSubstr("write at most 36%\n"));
  EXPECT_THAT(answer.trouble, Not(HasSubstr("namespaces.c")));
  command_.format = Format::kJson;
  const Json document = Json::parse(Ask(policy).text);
  EXPECT_EQ(document["good"], true);
  ASSERT_EQ(document["warnings"].size(), 1u);
  EXPECT_THAT(document["warnings"][0].get<std::string>(), HasSubstr("namespaces.b.smReserved"));
}

TEST_F(PolicyQuestion, CheckJudgesPromisesAgainstEachGpu) {
  command_.gpus = {{"", 80 * kGiB}, {"", 40 * kGiB}};
  EXPECT_THAT(Ask("defaults: {memory: 3GiB}").text,
              HasSubstr("a GPU of 80GiB: 10 slots, 6000MiB kept for the executors, auto is "
                        "7592MiB a slot\na GPU of 40GiB: 10 slots, 5GiB kept"));
  const Answer broken = Ask("defaults: {memory: 7GiB}");
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_THAT(broken.trouble, HasSubstr("p.yaml:1:20: defaults.memory: 10 slots x 7GiB is more "
                                        "than GPU of 40GiB has"));
  EXPECT_EQ(Ask("overcommit: true\ndefaults: {memory: 7GiB}").exit_status, 0);
  command_.slots = 4;
  EXPECT_EQ(Ask("defaults: {memory: 7GiB}").exit_status, 0);
  command_.reserve = "20GiB";
  EXPECT_EQ(Ask("defaults: {memory: 7GiB}").exit_status, 1);
  command_.reserve = "much";
  EXPECT_EQ(Ask("{}").exit_status, 2);
}

TEST_F(PolicyQuestion, CheckKnowsWhatIsForOtherGpusByTheirProduct) {
  const char* mixed =
      "namespaces: {a: {gpus: [NVIDIA H200], memory: 13GiB}, b: {memory: 7GiB}, c: {gpus: [3], "
      "memory: 6GiB}}";
  command_.gpus = {{"NVIDIA H100 80GB HBM3", 90 * kGiB}, {"NVIDIA H200", 141 * kGiB}};
  EXPECT_THAT(Ask(mixed).text,
              AllOf(HasSubstr("a GPU NVIDIA H200 of 141GiB: 10 slots"), HasSubstr(": good\n")));
  command_.gpus[0].product = "";
  EXPECT_THAT(Ask(mixed).trouble, HasSubstr("namespaces.a.memory: 10 slots x 13GiB is more than"))
      << "which it is nobody knows";
  command_.gpus[0] = {"NVIDIA L4", 24 * kGiB};
  const Answer all = Ask(mixed);
  EXPECT_EQ(all.exit_status, kNotGood);
  EXPECT_THAT(all.trouble, AllOf(HasSubstr("namespaces.b.memory: 10 slots x 7GiB is more than GPU "
                                           "NVIDIA L4 of 24GiB has"),
                                 HasSubstr("namespaces.c.memory"), Not(HasSubstr("spaces.a."))));
}

TEST_F(PolicyQuestion, ExplainSaysWhichRuleGivesWhat) {
  const char* policy =
      "defaults: {weight: 50, memory: 2GiB}\n"
      "namespaces:\n"
      "  team-a:\n"
      "    priority: high\n"
      "    gpus: [0, \"NVIDIA*\"]\n"
      "    pods:\n"
      "      \"train-*/main\": {priority: low, weight: 7}\n";
  command_.kind = Kind::kExplain;
  command_.pod_namespace = "team-a";
  const std::string of_namespace = Ask(policy).text;
  EXPECT_THAT(of_namespace, MatchesRegex("namespace team-a\n"
                                         "  memory +2GiB +[^\n]*p.yaml:1:32: defaults.memory\n"
                                         "  trustDomain +namespace +built in\n"
                                         "  maxTenants +no bound +built in\n"
                                         "  rescueAfter +100ms +built in\n"
                                         "  weight +50 +[^\n]*:1:20: defaults.weight\n"
                                         "  priority +high +[^\n]*:4:15: "
                                         "namespaces.team-a.priority\n"
                                         "  timeShareMax +100% +built in\n"
                                         "  smPercent +100% +built in\n"
                                         "  smReserved +0% +built in\n"
                                         "  memoryWait +0s +built in\n"
                                         "  maxKernelTime +no limit +built in\n"
                                         "  trace +none +built in\n"
                                         "  deny +false +built in\n"
                                         "  gpus +0, NVIDIA\\* +[^\n]*namespaces.team-a.gpus\n"));
  EXPECT_THAT(Ask("defaults: {rescueAfter: never}").text, HasSubstr("  rescueAfter    never  "));
  EXPECT_THAT(Ask("defaults: {rescueAfter: 1m}").text, HasSubstr("  rescueAfter    60s  "));
  command_.pod = "train-1/main";
  EXPECT_THAT(Ask(policy).text,
              AllOf(HasSubstr(of_namespace + "pod train-1, container main\n"),
                    HasSubstr(":7:47: namespaces.team-a.pods.train-*/main.weight\n"),
                    HasSubstr(":7:34: namespaces.team-a.pods.train-*/main.priority\n")));
  command_.pod = "train-1";
  EXPECT_THAT(Ask(policy).text, AllOf(HasSubstr("pod train-1\n  weight         100 "),
                                      HasSubstr("  gpus           as above")));
  const std::string of_kernels =
      Ask("namespaces: {team-a: {maxKernelTime: {warn: 2m, end: 1h}}}").text;
  EXPECT_THAT(of_kernels,
              ::testing::ContainsRegex("maxKernelTime +warn: 120s, end: 3600s +[^\n]*:1:38: "
                                       "namespaces.team-a.maxKernelTime\n"));
}

TEST_F(PolicyQuestion, TheSameAsDocuments) {
  command_.format = Format::kJson;
  command_.gpus = {{"", 80 * kGiB}};
  EXPECT_EQ(Json::parse(Ask("defaults: {memory: 3GiB}").text),
            Json({{"file", command_.file},
                  {"good", true},
                  {"gpus",
                   {{{"memory_bytes", 80 * kGiB},
                     {"slots", 10},
                     {"reserve_bytes", uint64_t{6000} << 20},
                     {"auto_slot_bytes", uint64_t{7592} << 20}}}},
                  {"partitions", Json::array()},
                  {"warnings", Json::array()}}));
  EXPECT_EQ(Json::parse(Ask("namespaces: {a: {smPercent: 25%}}").text)["partitions"],
            Json::array({{{"key", "namespaces.a.smPercent"},
                          {"percent", 25},
                          {"multiprocessors", 32},
                          {"of_multiprocessors", 132},
                          {"in_groups_of", 8}}}));
  for (const char* wrong : {"defaults: {memroy: 3GiB}", "defaults: {memory: 70GiB}"}) {
    const Answer answer = Ask(wrong);
    EXPECT_EQ(answer.exit_status, 1);
    const Json document = Json::parse(answer.text);
    EXPECT_EQ(document["good"], false);
    EXPECT_EQ(document["error"].get<std::string>() + "\n", answer.trouble);
  }
  command_.kind = Kind::kExplain;
  command_.pod_namespace = "a";
  command_.pod = "p/c";
  const char* policy =
      "namespaces: {a: {weight: 7, gpus: [0, H200], pods: {p: {timeShareMax: 5%}}}}";
  const Json document = Json::parse(Ask(policy).text);
  EXPECT_EQ(document["namespace"], "a");
  const Json& settings = document["settings"];
  EXPECT_EQ(settings["weight"],
            Json({{"value", 7}, {"rule", command_.file + ":1:26: namespaces.a.weight"}}));
  EXPECT_EQ(settings["maxTenants"], Json({{"value", nullptr}, {"rule", nullptr}}));
  EXPECT_EQ(settings["deny"]["value"], false);
  EXPECT_EQ(settings["gpus"]["value"], Json({0, "H200"}));
  const Json& pod = document["pod"];
  EXPECT_EQ(pod["container"], "c");
  EXPECT_EQ(pod["settings"]["timeShareMax"]["value"], "5%");
  EXPECT_EQ(pod["settings"]["deny"], Json({{"value", nullptr}, {"rule", nullptr}}))
      << "the namespace's";
  command_.format = Format::kYaml;
  EXPECT_THAT(Ask(policy).text, HasSubstr("namespace: a\nsettings:\n  memory:\n    value: auto\n"));
}

TEST_F(PolicyQuestion, SimulateGivesTenantsWhatThePolicySays) {
  command_.kind = Kind::kSimulate;
  command_.tenants = {"namespace=a,name=server-1,kernel=1ms", "namespace=b,name=x,kernel=1ms"};
  command_.simulator = {"--seconds", "1"};
  const auto share = [&](const std::string& policy, const std::string& tenant) {
    const Answer answer = Ask(policy);
    EXPECT_EQ(answer.exit_status, 0) << answer.trouble;
    std::istringstream lines(answer.text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, space, priority;
      double percent = 0;
      if (words >> name >> space >> priority >> percent && name == tenant) return percent;
    }
    ADD_FAILURE() << "no line of " << tenant << ":\n" << answer.text;
    return 0.0;
  };
  EXPECT_NEAR(share("{}", "server-1"), 50, 3);
  EXPECT_NEAR(share("namespaces: {a: {weight: 300}}", "server-1"), 75, 3);
  EXPECT_NEAR(share("namespaces: {a: {timeShareMax: 10%}}", "server-1"), 10, 3);
  EXPECT_NEAR(share("namespaces: {a: {pods: {'server-*': {timeShareMax: 20%}}}}", "server-1"), 20,
              3);
  EXPECT_GT(share("namespaces: {a: {priority: high}}", "server-1"), 85);
  EXPECT_NEAR(share("defaults: {trustDomain: node}\nnamespaces: {b: {weight: 300}}", "x"), 75, 3);

  const Answer partly =
      Ask("namespaces: {a: {smPercent: 25%, pods: {'server-*': {smReserved: 10%}}}}");
  EXPECT_EQ(partly.exit_status, 0);
  EXPECT_EQ(partly.trouble,
            "gpuloom: namespaces.a.pods.server-*.smReserved is not simulated: every tenant has all "
            "multiprocessors\n"
            "gpuloom: namespaces.a.smPercent is not simulated: every tenant has all "
            "multiprocessors\n");
  EXPECT_EQ(Ask("namespaces: {c: {smPercent: 25%}}").trouble, "") << "no tenant's";

  for (const char* wrong : {"name=a", "namespace=a,weight=3", "namespace=a,priority=high",
                            "namespace=a,max=5", "namespace=a,domain=d", "namespace=a,colour=3"}) {
    command_.tenants = {wrong};
    const Answer answer = Ask("{}");
    EXPECT_EQ(answer.exit_status, 2) << wrong;
    EXPECT_THAT(answer.trouble, HasSubstr("gpuloom: --tenant: ")) << wrong;
  }
}

// As the program's own, but for where mistakes go.
bool Parse(std::vector<std::string> words, PolicyCommand* command) {
  CLI::App app;
  const CLI::App* policy = AddPolicyCommand(&app, command);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::ParseError&) {
    return false;
  }
  return static_cast<bool>(*policy);
}

TEST(PolicyCommandLine, TakesQuestionsAndRefusesHalfOnes) {
  PolicyCommand command;
  ASSERT_TRUE(Parse({"policy", "check", "--gpu", "80GiB", "f", "--gpu", "H200=141GiB", "--slots",
                     "4", "--reserve", "2GiB"},
                    &command));
  EXPECT_EQ(command.kind, Kind::kCheck);
  EXPECT_EQ(command.file, "f");
  EXPECT_THAT(command.gpus, ElementsAre(PolicyCommand::CheckedGpu{"", 80 * kGiB},
                                        PolicyCommand::CheckedGpu{"H200", 141 * kGiB}));
  EXPECT_EQ(command.slots, 4);
  EXPECT_EQ(command.reserve, "2GiB");
  command = {};
  ASSERT_TRUE(Parse({"policy", "explain", "f", "team-a", "p/c"}, &command));
  EXPECT_EQ(command.kind, Kind::kExplain);
  EXPECT_EQ(command.pod_namespace, "team-a");
  EXPECT_EQ(command.pod, "p/c");
  command = {};
  ASSERT_TRUE(Parse({"policy", "simulate", "--tenant", "namespace=a", "f", "--tenant",
                     "namespace=b", "--seconds", "2"},
                    &command));
  EXPECT_EQ(command.kind, Kind::kSimulate);
  EXPECT_THAT(command.tenants, ElementsAre("namespace=a", "namespace=b"));
  EXPECT_THAT(command.simulator, ElementsAre("--seconds", "2"));
  command = {};
  ASSERT_TRUE(Parse(
      {"policy", "simulate", "f", "--tenants", "-", "--trace", "t", "--gpus", "40", "-o", "json"},
      &command));
  EXPECT_EQ(command.kind, Kind::kSimulate);
  EXPECT_EQ(command.tenants_file, "-");
  EXPECT_EQ(command.trace_file, "t");
  EXPECT_EQ(command.simulated_gpus, 40u);
  EXPECT_EQ(command.format, Format::kJson);
  command = {};
  ASSERT_TRUE(Parse({"policy", "diff", "-", "-o", "json"}, &command));
  EXPECT_EQ(command.kind, Kind::kDiff);
  EXPECT_EQ(command.file, "-");
  EXPECT_EQ(command.state_dir, "/var/lib/gpuloom");
  EXPECT_EQ(command.format, Format::kJson);
  command = {};
  ASSERT_TRUE(Parse({"policy", "show"}, &command));
  EXPECT_EQ(command.kind, Kind::kShow);
  EXPECT_EQ(command.file, "/etc/gpuloom/policy.yaml");
  EXPECT_EQ(command.state_dir, "/var/lib/gpuloom");
  command = {};
  setenv("GPULOOM_STATE_DIR", "/srv/gpuloom", 1);
  ASSERT_TRUE(Parse({"policy", "show"}, &command));
  EXPECT_EQ(command.state_dir, "/srv/gpuloom");
  unsetenv("GPULOOM_STATE_DIR");
  command = {};
  ASSERT_TRUE(Parse({"policy", "show", "f", "--state-dir", "/s", "-o", "json"}, &command));
  EXPECT_EQ(command.file, "f");
  EXPECT_EQ(command.state_dir, "/s");
  EXPECT_EQ(command.format, Format::kJson);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"policy"},
           {"policy", "check"},
           {"policy", "check", "f", "g"},
           {"policy", "check", "f", "--gpu"},
           {"policy", "check", "f", "--gpu", "80GB"},
           {"policy", "check", "f", "--gpu", "H200="},
           {"policy", "check", "f", "--slots", "0"},
           {"policy", "diff"},
           {"policy", "explain", "f"},
           {"policy", "simulate", "f"},
           {"policy", "simulate", "f", "--trace", "t"},
           {"policy", "simulate", "-", "--tenants", "-"},
           {"policy", "simulate", "f", "--tenants", "t", "--gpus", "0"},
           {"policy", "obey", "f"}}) {
    command = {};
    EXPECT_FALSE(Parse(words, &command)) << ::testing::PrintToString(words);
  }
}

}  // namespace
}  // namespace gpuloom
