// SPDX-License-Identifier: Apache-2.0
// Nodes as folders: a good one, and one for each thing that can be wrong with it.
#include "agent/run/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/node/gpu_standing.h"
#include "agent/node/sealed_text.h"
#include "agent/policy/policy_file.h"
#include "agent/run/doctor/look.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/testing/recording.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kDriver[] =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Wed Aug 27 03:33:15 UTC 2025\nGCC "
    "version: gcc 12.2\n";
constexpr char kForbids[] = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n";
constexpr char kState[] = "/var/lib/gpuloom";
constexpr char kPlugins[] = "/var/lib/kubelet/device-plugins/";

class DoctorTest : public ::testing::Test {
 protected:
  // A node with a GPU, a kubelet and an agent; only schedulers are missing.
  void SetUp() override {
    root_ = "/tmp/gpuloom-doctor-XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    command_.root = root_;
    command_.program = root_ + "/opt/gpuloom/bin/gpuloom";
    command_.format = Format::kJson;
    command_.landlock_version = [] { return 4; };
    command_.page_bytes = [] { return uint64_t{4096}; };
    command_.file_system = [](const std::string&) -> std::optional<FileSystem> {
      return FileSystem{false, uint64_t{10} << 30, UINT64_MAX};
    };
    Write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    Write("/proc/sys/kernel/seccomp/actions_avail",
          "kill_process kill_thread trap errno user_notif trace log allow\n");
    Write("/proc/sys/user/max_user_namespaces", "96000\n");
    Write("/proc/driver/nvidia/version", kDriver);
    for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"})
      Write(std::string("/usr/lib64/") + library, "ELF");
    for (const char* device : {"nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"})
      Write(std::string("/dev/") + device, "");
    Write("/etc/nvidia-container-runtime/config.toml", kForbids);
    Listen(std::string(kPlugins) + "kubelet.sock");
    Listen("/var/lib/kubelet/pod-resources/kubelet.sock");
    Listen(std::string(kPlugins) + "gpuloom-12345678.sock");
    Write("/etc/gpuloom/policy.yaml", "defaults: {weight: 50}\n");
    Write(std::string(kState) + "/" + kKeptPolicyName, SealText("defaults: {weight: 50}\n"));
    const std::string version(kVersion);
    const std::string release = version.substr(0, version.find(' '));
    Write(std::string(kState) + "/shim/libgpuloom-" + release + "-0123456789abcdef.so", "ELF");
    Write(std::string(kState) + "/shim/libgpuloom-nvml-" + release + "-0123456789abcdef.so", "ELF");
    Write(std::string(kState) + "/programs/gpuloom-trace-" + release + "-0123456789abcdef", "ELF");
    Write(std::string(kState) + "/shim/empty-i386.so", "ELF");
    fs::permissions(root_ + kState, fs::perms::owner_all);
    for (const char* file : {"bin/gpuloom", "bin/gpuloom-scheduler", "bin/gpuloom-executor",
                             "lib/libgpuloom.so", "lib/libgpuloom-nvml.so", "lib/gpuloom-trace"}) {
      Write(std::string("/opt/gpuloom/") + file, "ELF");
      fs::permissions(root_ + "/opt/gpuloom/" + file, fs::perms::owner_all);
    }
    WriteExecutor(std::string(kVersion), "CUPTI: libcupti.so.1, API 17, /c");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteExecutor(const std::string& version, const std::string& cupti) const {
    Write("/opt/gpuloom/bin/gpuloom-executor", "#!/bin/sh\necho 'gpuloom-executor " + version +
                                                   ", wire 1.0, control 1.0'\necho '" + cupti +
                                                   "'\n");
  }
  void Remove(const std::string& path) const {
    EXPECT_GT(fs::remove_all(root_ + path), 0u) << path;
  }
  void Listen(const std::string& path) {
    Bind(path);
    EXPECT_EQ(listen(sockets_.back().get(), 1), 0);
  }
  // A socket on which nobody listens.
  void Bind(const std::string& path) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    sockets_.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    (root_ + path).copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(
        bind(sockets_.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
  }

  Json Look() {
    const Answer answer = Doctor(command_);
    EXPECT_EQ(answer.trouble, "");
    Json document = Json::parse(answer.text);
    EXPECT_EQ(answer.exit_status, document["errors"] == 0 ? 0 : 1);
    return document;
  }
  // All findings of a check: "VERDICT: what was found → what to do", a line each.
  std::string Of(const std::string& check) {
    std::string text;
    const Json document = Look();
    for (const Json& finding : document["findings"]) {
      if (finding["check"] != check) continue;
      EXPECT_EQ(finding["remedy"] == "", finding["verdict"] == "ok") << finding;
      text += finding["verdict"].get<std::string>() + ": " + finding["found"].get<std::string>() +
              " → " + finding["remedy"].get<std::string>() + "\n";
    }
    return text;
  }

  std::string root_;
  DoctorCommand command_;
  std::vector<channel::UniqueFd> sockets_;
};

TEST_F(DoctorTest, AGoodNodeHasNothingWrongButTheMissingScheduler) {
  const Json document = Look();
  EXPECT_EQ(document["errors"], 1) << document;
  EXPECT_EQ(document["warnings"], 0) << document;
  EXPECT_THAT(Of("schedulers"), StartsWith("error: none runs → the node's gpuloom-schedulers pod"));
  EXPECT_EQ(Of("kernel"), "ok: Linux 6.1.0-18-amd64 → \n");
  EXPECT_EQ(Of("driver"), "ok: NVIDIA 580.159.04 → \n");
  EXPECT_EQ(Of("GPU devices"), "ok: 2 GPUs → \n");
  EXPECT_THAT(Of("policy"), StartsWith("ok: /etc/gpuloom/policy.yaml, in force since 2"));
  command_.format = Format::kTable;
  const Answer answer = Doctor(command_);
  EXPECT_EQ(answer.exit_status, 1);
  EXPECT_THAT(answer.text,
              AllOf(StartsWith("ok        kernel "), HasSubstr("\nerror     schedulers "),
                    HasSubstr("→  the node's gpuloom-schedulers pod"),
                    ::testing::EndsWith("\nerrors: 1, warnings: 0\n")));
}

TEST_F(DoctorTest, TheExecutorIsOfThisReleaseAndSaysWhetherThereIsCupti) {
  EXPECT_EQ(Of("CUPTI"), "ok: installed: libcupti.so.1, API 17, /c → \n");
  WriteExecutor(std::string(kVersion), "no CUPTI: it is off");
  EXPECT_EQ(Of("CUPTI"),
            "ok: installed: none, so traces have the executors' own times: it is off → \n");
  WriteExecutor("0.0.1 (old)", "");
  EXPECT_THAT(Of("installation"),
              HasSubstr("warning: gpuloom-executor is of another release, 0.0.1 (old); this is"));
  EXPECT_EQ(Of("CUPTI"), "") << "it does not say";
  Write("/opt/gpuloom/bin/gpuloom-executor", "no program");
  EXPECT_THAT(Of("installation"), AllOf(HasSubstr("error: "), HasSubstr("bin/gpuloom-executor: ")));
}

TEST_F(DoctorTest, OnLargePagesNoSchedulerStarts) {
  command_.page_bytes = [] { return uint64_t{65536}; };
  EXPECT_THAT(Of("kernel"),
              StartsWith("error: Linux 6.1.0-18-amd64, with pages of 64 KiB: no scheduler starts"));
}

TEST_F(DoctorTest, WhatConfinementWantsOfTheKernel) {
  command_.landlock_version = [] { return 0; };
  EXPECT_THAT(Of("landlock"),
              AllOf(StartsWith("warning: this kernel has no Landlock"), HasSubstr("lsm=")));
  Write("/proc/sys/kernel/seccomp/actions_avail", "kill_thread errno allow\n");
  EXPECT_THAT(Of("seccomp"), StartsWith("warning: system calls are filtered, but"));
  Remove("/proc/sys/kernel/seccomp");
  EXPECT_THAT(Of("seccomp"), StartsWith("error: "));
  Write("/proc/sys/kernel/unprivileged_userns_clone", "0\n");
  EXPECT_THAT(Of("namespaces"), AllOf(StartsWith("warning: "), HasSubstr("executorUsers")));
  Remove("/proc/sys/kernel/unprivileged_userns_clone");
  Write("/proc/sys/user/max_user_namespaces", "0\n");
  EXPECT_THAT(Of("namespaces"), StartsWith("warning: "));
}

TEST_F(DoctorTest, DriverAndDevices) {
  Write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release\n");
  EXPECT_THAT(Of("driver"), StartsWith("warning: NVIDIA 535.54.03: "));
  Write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX aarch64 Kernel Module  580.95.05  Release\n");
  EXPECT_EQ(Of("driver"), "ok: NVIDIA 580.95.05 → \n");
  Remove("/usr/lib64/libcuda.so.1");
  EXPECT_THAT(Of("driver libraries"),
              AllOf(StartsWith("error: libcuda.so.1 is in none"), HasSubstr("runtimeClassName")));
  Remove("/dev/nvidia-uvm");
  EXPECT_THAT(Of("GPU devices"), StartsWith("error: /dev/nvidia-uvm: not there"));
  Write("/dev/nvidia-uvm", "");
  Write("/proc/driver/nvidia/capabilities/gpu1/mig/gi3/access", "");
  EXPECT_THAT(
      Of("GPU devices"),
      HasSubstr(
          "error: gpu1 is in MIG mode, which gpuloom does not share → nvidia-smi -i 1 -mig 0"));
  Remove("/dev/nvidia0");
  Remove("/dev/nvidia1");
  EXPECT_THAT(Of("GPU devices"), StartsWith("error: /dev/nvidia0: not there"));

  Remove("/proc/driver/nvidia");
  EXPECT_THAT(Of("driver"), StartsWith("warning: this machine has no NVIDIA GPU"));
  EXPECT_EQ(Of("GPU devices"), "");
  Write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  Write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  EXPECT_THAT(Of("driver"),
              StartsWith("error: there is an NVIDIA GPU, but its driver is not loaded"));
  Write("/proc/modules", "nouveau 2433024 0 - Live 0x0000000000000000\n");
  EXPECT_THAT(Of("driver"), StartsWith("error: the GPU's driver is nouveau"));
}

TEST_F(DoctorTest, TheContainerRuntimesConfiguration) {
  Write("/etc/nvidia-container-runtime/config.toml", "# nothing\n");
  EXPECT_THAT(
      Of("container runtime"),
      AllOf(StartsWith("warning: /etc/nvidia-container-runtime/config.toml lets any pod ask"),
            HasSubstr("= false")));
  // The node's own, as the chart mounts it, counts more than the image's.
  Write("/etc/gpuloom-node/nvidia-container-runtime/config.toml", kForbids);
  EXPECT_THAT(Of("container runtime"), StartsWith("ok: /etc/gpuloom-node/"));
  Remove("/etc/gpuloom-node");
  Remove("/etc/nvidia-container-runtime");
  EXPECT_THAT(Of("container runtime"),
              StartsWith("warning: the configuration of NVIDIA's container runtime is not found"));
  Write("/etc/containerd/config.toml", "version = 2\n");
  EXPECT_THAT(Of("container runtime"),
              HasSubstr("error: the container runtime's configuration has no runtime nvidia"));
  Write("/etc/containerd/config.toml", "default_runtime_name = \"nvidia\"\n");
  EXPECT_THAT(Of("container runtime"), HasSubstr("warning: NVIDIA's runtime is the default"));
}

TEST_F(DoctorTest, WhatContainerdsConfigurationImports) {
  const char* const kMissing = "has no runtime nvidia";
  Write("/etc/containerd/config.toml", "version = 2\n[imports]\nimports = [\"/etc/x.toml\"]\n");
  Write("/etc/x.toml", "[plugins.x.containerd.runtimes.nvidia]\n");
  Write("/etc/containerd/conf.d/99-nvidia.toml", "[plugins.x.containerd.runtimes.nvidia]\n");
  EXPECT_THAT(Of("container runtime"), HasSubstr(kMissing)) << "nobody imports these";
  for (const char* imports :
       {"imports = [\"/etc/containerd/conf.d/*.toml\"]\n", "imports=['conf.d/*.toml']\n",
        "imports = [\n  \"/etc/none.toml\",\n  \"/etc/x.toml\",\n]\n",
        "imports = [\"config.toml\", \"/etc/*.toml\"]\n"}) {
    Write("/etc/containerd/config.toml", std::string("# x\nversion = 2\n") + imports);
    EXPECT_THAT(Of("container runtime"), Not(HasSubstr(kMissing))) << imports;
  }
  for (const char* wrong : {"imports = [\"/etc/x.toml", "imports", "imports =", "imports = [\"]"}) {
    Write("/etc/containerd/config.toml", wrong);
    EXPECT_THAT(Of("container runtime"), HasSubstr(kMissing)) << wrong;
  }
}

TEST_F(DoctorTest, DistributionsHaveAContainerdOfTheirOwn) {
  for (const char* config :
       {"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "/var/snap/microk8s/current/args/containerd.toml", "/etc/k0s/containerd.toml"}) {
    Write(config, "version = 2\n");
    EXPECT_THAT(Of("container runtime"), HasSubstr("has no runtime nvidia")) << config;
    Write(config, "version = 2\n[plugins.x.containerd.runtimes.nvidia]\n");
    EXPECT_THAT(Of("container runtime"), Not(HasSubstr("has no runtime nvidia"))) << config;
    Remove(config);
  }
}

TEST_F(DoctorTest, AKubeletThatIsElsewhereIsNamed) {
  Remove("/var/lib/kubelet");
  EXPECT_THAT(Of("kubelet"), StartsWith("ok: none on this machine"));
  for (const std::string folder :
       {"/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/k0s/kubelet"}) {
    Write(folder + "/x", "");
    EXPECT_EQ(Of("kubelet"), "error: its folder is " + folder +
                                 ", not /var/lib/kubelet → value kubeletDir: " + folder +
                                 "; this command: --kubelet-dir " + folder + "\n");
  }
}

TEST_F(DoctorTest, SocketsThatAgentsHaveLeft) {
  Bind(std::string(kPlugins) + "gpuloom-00000001.sock");
  Bind(std::string(kPlugins) + "gpuloom-00000002.sock");
  Bind(std::string(kPlugins) + "another.sock");
  EXPECT_THAT(Of("device plugin"),
              HasSubstr("warning: left in /var/lib/kubelet/device-plugins by agents that did not "
                        "end by themselves: 2 sockets"));
}

TEST_F(DoctorTest, TheKubeletAndWhoServesIt) {
  EXPECT_THAT(Of("kubelet"),
              AllOf(HasSubstr("ok: /var/lib/kubelet/device-plugins/kubelet.sock answers"),
                    HasSubstr("ok: /var/lib/kubelet/pod-resources/kubelet.sock answers")));
  EXPECT_THAT(Of("device plugin"), StartsWith("ok: gpuloom's agent serves the kubelet"));
  Listen(std::string(kPlugins) + "nvidia-gpu.sock");
  EXPECT_THAT(Of("device plugin"),
              HasSubstr("error: NVIDIA's device plugin serves here, too (nvidia-gpu.sock)"));
  Remove(std::string(kPlugins) + "nvidia-gpu.sock");
  Bind(std::string(kPlugins) + "nvidia-gpu.sock");
  EXPECT_THAT(Of("device plugin"), Not(HasSubstr("NVIDIA"))) << "it left its socket and is gone";
  Remove(std::string(kPlugins) + "gpuloom-12345678.sock");
  Bind(std::string(kPlugins) + "gpuloom-87654321.sock");
  EXPECT_THAT(Of("device plugin"), StartsWith("error: no agent of gpuloom serves the kubelet"));
  Remove(std::string(kPlugins) + "kubelet.sock");
  EXPECT_THAT(Of("kubelet"),
              HasSubstr("error: /var/lib/kubelet/device-plugins/kubelet.sock: not there"));
  Bind(std::string(kPlugins) + "kubelet.sock");
  EXPECT_THAT(Of("kubelet"),
              HasSubstr("error: /var/lib/kubelet/device-plugins/kubelet.sock: nobody listens"));
  Remove("/var/lib/kubelet");
  EXPECT_THAT(Of("kubelet"), StartsWith("ok: none on this machine"));
  EXPECT_THAT(Of("schedulers"), StartsWith("ok: none runs"));
}

TEST_F(DoctorTest, ThePolicyAndWhetherItIsInForce) {
  GpuStanding standing;
  standing.impossible_rules = 2;
  const std::string gpu = FolderOfGpu(kState, "GPU-1");
  Write(StandingPath(gpu), FormatStanding(standing));
  EXPECT_THAT(Of("policy"), AllOf(StartsWith("warning: /etc/gpuloom/policy.yaml, in force since"),
                                  HasSubstr("rules that GPU-1 cannot keep to: 2")));
  Remove(gpu);
  Write("/etc/gpuloom/policy.yaml", "defaults: {wait: 50}\n");
  EXPECT_THAT(Of("policy"), AllOf(StartsWith("error: the policy file is not what is in force: "),
                                  HasSubstr("policy.yaml:1:12: defaults.wait: unknown key")));
  Remove("/etc/gpuloom/policy.yaml");
  EXPECT_THAT(Of("policy"), StartsWith("warning: the last good policy"));
  Remove(std::string(kState) + "/" + kKeptPolicyName);
  EXPECT_THAT(Of("policy"), StartsWith("ok: no policy file"));
  Write("/etc/gpuloom/policy.yaml", "defaults: {wait: 50}\n");
  EXPECT_THAT(Of("policy"), StartsWith("error: no policy is in force: "));
}

TEST_F(DoctorTest, TheStateFolder) {
  EXPECT_THAT(Of("state folder"), StartsWith("ok: /var/lib/gpuloom is closed to others"));
  fs::permissions(root_ + kState, fs::perms::others_exec, fs::perm_options::add);
  EXPECT_THAT(Of("state folder"), StartsWith("error: /var/lib/gpuloom has the mode 0701"));
  command_.file_system = [](const std::string&) -> std::optional<FileSystem> {
    return FileSystem{true, uint64_t{1} << 20, UINT64_MAX};
  };
  EXPECT_THAT(Of("state folder"),
              HasSubstr("error: /var/lib/gpuloom is on a file system mounted noexec"));
  EXPECT_THAT(Of("disk space"), StartsWith("error: 1.0MiB free in /var/lib/gpuloom"));
  command_.file_system = [](const std::string&) -> std::optional<FileSystem> {
    return FileSystem{false, uint64_t{100} << 20, 1000};
  };
  EXPECT_THAT(Of("disk space"), StartsWith("warning: 100.0MiB free"));
  command_.file_system = [](const std::string&) -> std::optional<FileSystem> {
    return FileSystem{false, uint64_t{100} << 30, 3};
  };
  EXPECT_THAT(Of("disk space"), AllOf(StartsWith("error: "), HasSubstr("hardly a file more")));
  Remove(kState);
  EXPECT_THAT(Of("state folder"),
              StartsWith("error: there is a kubelet, and no agent has run here"));
  Remove("/var/lib/kubelet");
  EXPECT_THAT(Of("state folder"), StartsWith("ok: no agent has run here"));
}

TEST_F(DoctorTest, OfAStateFolderThatIsClosedNothingIsSaid) {
  const bool is_root = geteuid() == 0;
  fs::permissions(root_, fs::perms::group_exec | fs::perms::others_exec, fs::perm_options::add);
  if (!is_root) fs::permissions(root_ + kState, fs::perms::none);
  ASSERT_EQ(is_root ? seteuid(65534) : 0, 0);
  const Json document = Look();
  ASSERT_EQ(is_root ? seteuid(0) : 0, 0);
  fs::permissions(root_ + kState, fs::perms::owner_all);
  std::string found;
  for (const Json& finding : document["findings"]) {
    if (finding["check"] == "state folder") found += finding["found"];
    EXPECT_NE(finding["check"], "libraries");
  }
  EXPECT_EQ(found, "/var/lib/gpuloom is closed to this user");
}

TEST_F(DoctorTest, TheLibrariesOfContainers) {
  const std::string shim = std::string(kState) + "/shim/";
  Write(shim + "libgpuloom-9.9.9-0123456789abcdef.so", "");
  EXPECT_THAT(
      Of("libraries"),
      StartsWith(
          "error: /var/lib/gpuloom/shim/libgpuloom-9.9.9-0123456789abcdef.so cannot be read"));
  Write(shim + "libgpuloom-9.9.9-0123456789abcdef.so", "ELF");
  EXPECT_THAT(Of("libraries"), StartsWith("ok: ")) << "former ones stay while they are used";
  for (const std::string& name : NamesIn(root_ + shim)) {
    if (!name.starts_with("libgpuloom-9") && name.starts_with("libgpuloom-") &&
        !name.starts_with("libgpuloom-nvml")) {
      Remove(shim + name);
    }
  }
  EXPECT_THAT(Of("libraries"),
              StartsWith("warning: the agent's libraries are not of this program's release"));
  Remove(shim + "empty-i386.so");
  EXPECT_THAT(Of("libraries"), StartsWith("error: not in /var/lib/gpuloom: shim/empty-i386.so"));
  fs::remove_all(root_ + kState + "/programs");
  EXPECT_THAT(Of("libraries"),
              StartsWith("error: not in /var/lib/gpuloom: programs/gpuloom-trace-…, shim/empty"));
  Remove("/opt/gpuloom/lib/libgpuloom.so");
  EXPECT_THAT(Of("installation"), AllOf(StartsWith("error: "), HasSubstr("libgpuloom.so")));
}

TEST_F(DoctorTest, EveryGpuHasAScheduler) {
  Bind(std::string(kState) + "/gpus/GPU-1/control.sock");
  fs::create_directories(root_ + kState + "/gpus/GPU-2");
  EXPECT_THAT(Of("schedulers"), AllOf(HasSubstr("error: no scheduler runs for GPU-1"),
                                      HasSubstr("error: no scheduler runs for GPU-2"),
                                      HasSubstr("/gpus/GPU-1/scheduler.log")));
}

TEST_F(DoctorTest, WhyAGpuIsOfferedToNobodyIsSaidWithoutItsSchedulerToo) {
  GpuStanding standing;
  standing.state = gpuloom::GpuState::kUnavailable;
  standing.reason = "scheduler has not answered for 10 s";
  Write(StandingPath(FolderOfGpu(kState, "GPU-1")), FormatStanding(standing));
  EXPECT_THAT(Of("gpus"),
              StartsWith("error: GPU-1 is offered to nobody: scheduler has not answered "
                         "for 10 s → mend that; "));
  Write(std::string(kState) + "/agent.lock", "1\n");
  EXPECT_EQ(Of("gpus"), "") << "an agent that is gone has said so";
  EXPECT_THAT(Of("policy"), StartsWith("error: no agent is in charge in "));
}

TEST_F(DoctorTest, WhoHoldsSlotsThatNoRecordTells) {
  Write(std::string(kState) + "/records/a.yaml", "damaged");
  fs::create_directories(root_ + kState + "/gpus/GPU-1");
  EXPECT_THAT(Of("state folder"), HasSubstr("/records/a.yaml cannot be read: not a record → "));
}

// A socket listens on, whatever becomes of who made it.
TEST_F(DoctorTest, AnAgentThatListensAndIsNotReadySaysWhy) {
  const std::string agent = "/opt/gpuloom/bin/gpuloom-agent";
  const auto answers = [&](const std::string& script) {
    Write(agent, "#!/bin/sh\n[ \"$*\" = \"--probe-ready --kubelet-dir " + root_ +
                     "/var/lib/kubelet/device-plugins\" ] || exit 7\n" + script);
    fs::permissions(root_ + agent, fs::perms::owner_all);
    return Of("device plugin");
  };
  EXPECT_EQ(answers("exit 0\n"), "ok: gpuloom's agent serves the kubelet and is ready → \n");
  EXPECT_THAT(answers("echo 'gpuloom-agent: it is not registered with the kubelet' >&2; exit 1\n"),
              StartsWith("error: gpuloom's agent is not ready: it is not registered with the "
                         "kubelet → kubectl describe"));
  EXPECT_THAT(answers("exit 3\n"), HasSubstr("is not ready: exited with status 3"));
  EXPECT_THAT(answers("exec sleep 100\n"),
              StartsWith("error: gpuloom's agent listens and does not answer → "));
  EXPECT_THAT(
      answers("echo 'gpuloom-agent: probe: no agent of this container serves in x'; exit 1"),
      StartsWith("ok: gpuloom's agent serves the kubelet; whether it is ready can be asked "
                 "in its own pod"));
}

TEST_F(DoctorTest, WhatAnInstallationHasLeft) {
  EXPECT_THAT(Of("state folder"), Not(HasSubstr("left")));
  Write(std::string(kState) + "/agent.lock", "1\n");
  EXPECT_THAT(Of("state folder"),
              HasSubstr("warning: no agent and no scheduler runs, and an installation has left "
                        "/var/lib/gpuloom → if gpuloom is gone from this node for good, delete"));
  Listen(std::string(kState) + "/gpus/GPU-1/" + control::kControlSocketName);
  EXPECT_THAT(Of("state folder"), Not(HasSubstr("left"))) << "its scheduler serves";
  Write(std::string(kState) + "/metrics.json.bad", "x");
  EXPECT_THAT(Of("state folder"), HasSubstr("has set aside: /var/lib/gpuloom/metrics.json.bad →"));
  Write(std::string(kState) + "/records/a.yaml.bad", "x");
  EXPECT_THAT(Of("state folder"), HasSubstr("metrics.json.bad and 1 more →"));
}

TEST_F(DoctorTest, ANodeWithoutAGpuNeedsNoScheduler) {
  Write(std::string(kState) + "/agent.lock", "1\n");
  EXPECT_EQ(Of("schedulers"), "ok: this node has no GPU to share → \n");
}

// What a scheduler of this release with these domains answers.
control::Recording Describing(const std::vector<control::DomainState>& domains) {
  control::Answer yes{};
  yes.ok = 1;
  yes.major = control::kControlMajor;
  yes.minor = control::kControlMinor;
  control::GpuState gpu{};
  control::SetText(gpu.uuid, "GPU-1");
  control::SetText(gpu.version, kVersion);
  control::Recording recording = {
      control::MakeRecorded(false,
                            control::ControlHello{control::kControlMajor, control::kControlMinor}),
      control::MakeRecorded(true, yes),
      control::MakeRecorded(false, control::ListAllocations{}),
      control::MakeRecorded(true, yes),
      control::MakeRecorded(false, control::DescribeGpu{}),
      control::MakeRecorded(true, gpu)};
  for (const control::DomainState& domain : domains) {
    recording.push_back(control::MakeRecorded(true, domain));
  }
  recording.push_back(control::MakeRecorded(true, yes));
  return recording;
}

TEST_F(DoctorTest, ExecutorsOfAnotherReleaseThanTheirScheduler) {
  std::vector<control::DomainState> domains;
  for (const auto& [name, version] :
       {std::pair("old", "0.1.9 (abc)"), {"new", kVersion}, {"silent", ""}}) {
    control::DomainState& domain = domains.emplace_back();
    control::SetText(domain.name, name);
    control::SetText(domain.executor_version, version);
    control::SetText(domain.executor_cupti, *version == 0 ? "" : "libcupti.so.13");
    domain.executor_has_cupti = 1;
  }
  const std::string folder = root_ + kState + "/gpus/GPU-1";
  fs::create_directories(folder);
  const control::RecordedScheduler scheduler(folder, Describing(domains));
  EXPECT_EQ(Of("executors"),
            "warning: executors of GPU-1 are of another release than their scheduler, 0.1.9 (abc): "
            "of old → they serve; where their programs may end, replace the scheduler: "
            "docs/upgrading.md\n");
  EXPECT_EQ(Of("schedulers"), "ok: scheduler of GPU-1 answers → \n");
  // Here and there may differ: a pod of the agent and one of the schedulers have other file systems.
  EXPECT_EQ(Of("CUPTI"),
            "ok: installed: libcupti.so.1, API 17, /c → \nok: executors of GPU-1: libcupti.so.13, "
            "of old, new → \n");
}

TEST_F(DoctorTest, ExecutorsThatAreNotFullyConfined) {
  std::vector<control::DomainState> domains(2);
  control::SetText(domains[0].name, "blue");
  control::SetText(domains[1].name, "red");
  domains[1].executor_is_lenient = 1;
  const std::string folder = root_ + kState + "/gpus/GPU-1";
  fs::create_directories(folder);
  const control::RecordedScheduler scheduler(folder, Describing(domains));
  EXPECT_THAT(Of("executors"),
              AllOf(HasSubstr("warning: executors of GPU-1 are not fully confined"),
                    HasSubstr(": of red →"), HasSubstr("scheduler.log says")));
}

TEST_F(DoctorTest, Malicious_NamesDoNotReachTheTerminalAsTheyAre) {
  Listen(std::string(kPlugins) + "nvidia\x1b[2J.sock");
  fs::create_directories(root_ + kState + "/gpus/\x1b[2J");
  command_.format = Format::kTable;
  const std::string text = Doctor(command_).text;
  EXPECT_THAT(text, AllOf(HasSubstr("nvidia\\x1b[2J.sock"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace gpuloom::run
