// SPDX-License-Identifier: Apache-2.0
// `gpuloom policy simulate` with files of tenants and requests, and for several GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/policy_command/policy_command.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class PolicySimulate : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "simulateXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    command_.kind = PolicyCommand::Kind::kSimulate;
    command_.simulator = {"--seconds", "1"};
    command_.file = Write("p.yaml", "namespaces: {a: {weight: 300}, b: {priority: low}}");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }

  Answer Ask() { return AnswerAboutPolicy(command_); }
  Json Document() {
    command_.format = Format::kJson;
    const Answer answer = Ask();
    EXPECT_EQ(answer.exit_status, 0) << answer.trouble;
    return Json::parse(answer.text);
  }

  std::filesystem::path directory_;
  PolicyCommand command_;
};

TEST_F(PolicySimulate, TenantsOfAFileAreAsOnTheCommandLine) {
  command_.tenants = {"namespace=a,name=x,kernel=1ms", "namespace=c,name=y,kernel=1ms"};
  const Json of_line = Document();
  command_.tenants = {"namespace=a,name=x,kernel=1ms"};
  command_.tenants_file = Write("tenants", "# the other one\n\nnamespace=c,name=y,kernel=1ms\r\n");
  EXPECT_EQ(Document(), of_line);
  EXPECT_NEAR(of_line["tenants"][0]["share_percent"].get<double>(), 75, 3);
  EXPECT_EQ(of_line["tenants"][1]["name"], "y");
}

TEST_F(PolicySimulate, TenantsAreDealtOutToGpus) {
  std::ostringstream tenants;
  for (int i = 0; i < 6; ++i) {
    tenants << "namespace=" << (i < 4 ? "a" : "b") << ",name=pod-" << i
            << ",kernel=1ms,requests=20ms\n";
  }
  command_.tenants_file = Write("tenants", tenants.str());
  command_.simulated_gpus = 3;
  const Json document = Document();
  ASSERT_EQ(document["gpus"].size(), 3u);
  ASSERT_EQ(document["tenants"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(document["tenants"][i]["name"], "pod-" + std::to_string(i));
    EXPECT_EQ(document["tenants"][i]["gpu"], i % 3);
  }
  ASSERT_EQ(document["classes"].size(), 2u);
  const Json& low = document["classes"][1];
  EXPECT_EQ(low["namespace"], "b");
  EXPECT_EQ(low["priority"], "low");
  EXPECT_EQ(low["tenants"], 2);
  EXPECT_EQ(low["requests"].get<int>(), document["tenants"][4]["requests"].get<int>() +
                                            document["tenants"][5]["requests"].get<int>());
  EXPECT_EQ(low["worst_p99_ms"].get<double>(),
            std::max(document["tenants"][4]["p99_ms"].get<double>(),
                     document["tenants"][5]["p99_ms"].get<double>()));
  // A table has no line for each of thousands of tenants.
  command_.format = Format::kTable;
  const std::string table = Ask().text;
  EXPECT_THAT(table, StartsWith("NAMESPACE   CLASS    TENANTS   SHARE %"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4) << table;
  EXPECT_THAT(table, HasSubstr("\n3 GPUs busy "));
}

TEST_F(PolicySimulate, ATraceIsWhatTenantsLaunch) {
  command_.tenants = {"namespace=a,name=x", "namespace=b,name=y,kernel=1ms"};
  command_.trace_file =
      Write("t.csv", "at_us,tenant,kernel_us,count\n10000,x,500,2\n20000,x,500,4\n");
  const Json document = Document();
  EXPECT_EQ(document["tenants"][0]["requests"], 2);
  EXPECT_EQ(document["tenants"][0]["kernels"], 6);
  EXPECT_NEAR(document["tenants"][0]["share_percent"].get<double>(), 0.3, 1e-6);
  EXPECT_GT(document["tenants"][1]["share_percent"].get<double>(), 95)
      << "has no rows: always wants";
}

TEST_F(PolicySimulate, MistakesInFilesAreNamedByTheirLine) {
  const auto trouble = [&] {
    const Answer answer = Ask();
    EXPECT_EQ(answer.exit_status, 2);
    EXPECT_EQ(answer.text, "");
    return answer.trouble;
  };
  const std::string good = "namespace=a,name=x\n";
  command_.tenants_file = Write("tenants", good + "namespace=a,colour=3\n");
  EXPECT_EQ(trouble(), "gpuloom: " + command_.tenants_file +
                           ":2: colour=3: no such key, or not a value of it; see --help\n");
  Write("tenants", good + "\nnamespace=a,weight=3\n");
  EXPECT_EQ(trouble(),
            "gpuloom: " + command_.tenants_file + ":3: weight=3: that is the policy's to say\n");
  Write("tenants", "name=x\n");
  EXPECT_EQ(trouble(),
            "gpuloom: " + command_.tenants_file + ":1: name=x: namespace=NAME is missing\n");
  Write("tenants", "# nobody\n");
  EXPECT_EQ(trouble(), "gpuloom: " + command_.tenants_file + ": no tenants\n");
  Write("tenants", good);
  command_.trace_file = Write("t.csv", "0,z,1,1\n");
  EXPECT_EQ(trouble(),
            "gpuloom: " + command_.trace_file + ":1: tenant z: there is none of this name\n");
  command_.trace_file += ".not";
  EXPECT_EQ(trouble(), "gpuloom: " + command_.trace_file + ": No such file or directory\n");
}

}  // namespace
}  // namespace gpuloom
