// SPDX-License-Identifier: Apache-2.0
// The parts of the stand-in that need no plugin; the rest is exercised by
// tests/integration/agent_*.
#include "tests/fake_kubelet/fake_kubelet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/fake_kubelet/container_process.h"
#include "tests/fake_kubelet/json_line.h"
#include "tests/fake_kubelet/replica_set.h"
#include "tests/fake_kubelet/scenario.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

TEST(Scenario, ReadsPodsAndNamesLines) {
  const auto pods = ParseScenario(
      "pods:\n  - {namespace: a, name: p, slots: 2, command: [/bin/true, x], env: {K: V}}\n"
      "  - {namespace: a, name: q, command: [/bin/true], after: p, timeoutSeconds: 3}\n"
      "  - {namespace: a, name: r, resource: gpu-x2, command: [/bin/true]}\n");
  ASSERT_TRUE(pods.ok()) << pods.status();
  EXPECT_EQ((*pods)[0].slots, 2);
  EXPECT_EQ((*pods)[0].env.at("K"), "V");
  EXPECT_EQ((*pods)[1].after, "p");
  EXPECT_EQ((*pods)[1].timeout_seconds, 3);
  EXPECT_EQ((*pods)[1].resource, "");
  EXPECT_EQ((*pods)[2].resource, "gpu-x2");
  for (const char* bad :
       {"", "pods: []", "pods:\n - {name: p}", "pods:\n - {name: p, command: []}",
        "pods:\n - {name: p, command: [x], slot: 1}", "pods:\n - {name: p, command: [x], after: z}",
        "pods:\n - {name: p, command: [x]}\n - {name: p, command: [x]}", "pods: ["}) {
    EXPECT_FALSE(ParseScenario(bad).ok()) << bad;
  }
  EXPECT_THAT(
      std::string(ParseScenario("pods:\n - {name: p, command: [x], slot: 1}").status().message()),
      HasSubstr("line 2: unknown key slot"));
}

TEST(JsonLine, EveryByteStringIsJson) {
  EXPECT_EQ(JsonLine().Text("a", "x\"\\\n\xff\xc3\xa9").Number("b", 7).Finish(),
            "{\"a\": \"x\\\"\\\\\\u000a\\ufffd\xc3\xa9\", \"b\": 7}");
}

FakeContainer SomeContainer() {
  FakeContainer container;
  container.envs = {{"LD_PRELOAD", "/c/$LIB/libcuda.so.1"}, {"NVIDIA_VISIBLE_DEVICES", "void"}};
  container.mounts = {{"/var/run/gpuloom", "/host/dir", true},
                      {"/c/lib64/libcuda.so.1", "/host/shim.so", true}};
  return container;
}

TEST(ContainerProcess, MountsBecomeEnvironment) {
  const auto environment = ContainerEnvironment(SomeContainer(), {{"EXTRA", "1"}});
  EXPECT_EQ(environment.at("LD_PRELOAD"), "/host/shim.so");
  EXPECT_EQ(environment.at("GPULOOM_SOCKET_DIR"), "/host/dir");
  EXPECT_EQ(environment.at("NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_EQ(environment.at("EXTRA"), "1");
  EXPECT_TRUE(environment.contains("PATH"));
}

TEST(ContainerProcess, TellsHowItEnded) {
  std::string folder = ::testing::TempDir() + "processXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string out = folder + "/out", err = folder + "/err";
  const auto run = [&](const char* script, std::chrono::milliseconds timeout) {
    return *RunProcess({"sh", "-c", script}, {{"PATH", "/usr/bin:/bin"}, {"WORD", "hi"}}, out, err,
                       timeout);
  };
  const ProcessResult failed = run("echo $WORD; echo no >&2; exit 3", std::chrono::seconds(60));
  EXPECT_EQ(failed.exit_code, 3);
  std::ostringstream text;
  text << std::ifstream(out).rdbuf() << std::ifstream(err).rdbuf();
  EXPECT_EQ(text.str(), "hi\nno\n");
  const ProcessResult killed = run("kill -9 $$", std::chrono::seconds(60));
  EXPECT_EQ(killed.exit_code, -1);
  EXPECT_EQ(killed.signal, 9);
  EXPECT_FALSE(killed.timed_out);
  const ProcessResult late = run("sleep 600", std::chrono::milliseconds(50));
  EXPECT_TRUE(late.timed_out);
  EXPECT_LT(late.duration, std::chrono::seconds(300));
  EXPECT_FALSE(RunProcess({"/nonexistent/program"}, {}, out, err, std::chrono::seconds(1)).ok());
  std::filesystem::remove_all(folder);
}

TEST(FakeKubelet, WithoutPluginNothingIsAdmitted) {
  std::string name = ::testing::TempDir() + "kubeletXXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  FakeKubelet kubelet(name);
  ASSERT_TRUE(kubelet.Start().ok());
  const auto refused = kubelet.Admit({"a", "p", {{"main", 1, false}}});
  EXPECT_FALSE(refused.ok());
  // In the words of a kubelet of 1.34.
  const auto status = kubelet.StatusOf("a", "p");
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->phase, "Failed");
  EXPECT_EQ(status->reason, "UnexpectedAdmissionError");
  EXPECT_EQ(status->message,
            "Pod was rejected: Allocate failed due to cannot allocate unregistered device "
            "gpuloom.io/gpu, which is unexpected");
  EXPECT_EQ(refused.status().message(), status->message);
  kubelet.RemovePod("a", "p");
  EXPECT_FALSE(kubelet.StatusOf("a", "p").has_value());
  // Nothing is placed on a node that offers nothing.
  FakeReplicaSet replicas(&kubelet, {"a", "web", {{"main", 1, false}}});
  for (int i = 0; i < 3; ++i) replicas.Sync();
  EXPECT_FALSE(replicas.is_running());
  EXPECT_TRUE(replicas.failed().empty());
  EXPECT_EQ(replicas.pending_because(), "0/1 nodes are available: 1 Insufficient gpuloom.io/gpu.");
  EXPECT_THAT(std::string(kubelet.WaitForDevices(1, std::chrono::milliseconds(1)).message()),
              HasSubstr("0 registrations"));
}

}  // namespace
}  // namespace gpuloom
