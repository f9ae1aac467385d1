// SPDX-License-Identifier: Apache-2.0
// The program as a user runs it: with a real scheduler, executor and software GPU, and shell
// commands as tenants.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "agent/node/gpu_standing.h"
#include "agent/run/state_dir.h"
#include "agent/run/testing/run_fixture.h"
#include "proto/control/testing/recording.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;

// With a context, machine code from the toolkit's compiler, `compiled(sm)`, and `load(image)`, which returns CUDA's result.
class GpuloomRunWithCompiler : public GpuloomRun {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GPULOOM_CUDA_LIBRARIES "/libnvrtc.so")) {
      GTEST_SKIP() << "no NVRTC in " GPULOOM_CUDA_LIBRARIES;
    }
    GpuloomRun::SetUp();
  }

  int RunWithCompiler(const std::string& program) {
    constexpr char kBegin[] =
        "import ctypes, struct, sys\n"
        "cuda, nvrtc = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(sys.argv[1] + '/libnvrtc.so')\n"
        "context, module = ctypes.c_void_p(), ctypes.c_void_p()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
        "assert cuda.cuCtxSetCurrent(context) == 0\n"
        "def compiled(sm):\n"
        "  program, size = ctypes.c_void_p(), ctypes.c_size_t()\n"
        "  source = b'extern \"C\" __global__ void k() {}'\n"
        "  options = (ctypes.c_char_p * 1)(b'-arch=sm_%d' % sm)\n"
        "  assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, None, 0, None, None) == "
        "0\n"
        "  assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0\n"
        "  assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0\n"
        "  cubin = ctypes.create_string_buffer(size.value)\n"
        "  assert nvrtc.nvrtcGetCUBIN(program, cubin) == 0\n"
        "  return cubin.raw\n"
        "def load(image):\n"
        "  return cuda.cuModuleLoadData(ctypes.byref(module), image)\n";
    return Run({GPULOOM_PYTHON, "-c", kBegin + program, GPULOOM_CUDA_LIBRARIES});
  }
};

TEST_F(GpuloomRun, SaysAtTheEndWhatIsNotSupported) {
  constexpr char kProgram[] =
      "import ctypes\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "assert cuda.cuInit(0) == 0\n"
      "assert cuda.cuGraphicsUnregisterResource(None) == 801\n"
      "assert cuda.cuGraphicsUnregisterResource(None) == 801\n";
  EXPECT_EQ(Run({GPULOOM_PYTHON, "-c", kProgram}), 0) << Errors();
  EXPECT_THAT(Errors(), ::testing::HasSubstr("gpuloom: 1 unsupported CUDA function was asked for: "
                                             "cuGraphicsUnregisterResource\n"));
}

// The runtime loads images without a buffer for the compiler's words.
TEST_F(GpuloomRun, SaysWhyAnImageDoesNotLoad) {
  constexpr char kProgram[] =
      "import ctypes\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "context, module = ctypes.c_void_p(), ctypes.c_void_p()\n"
      "assert cuda.cuInit(0) == 0\n"
      "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
      "assert cuda.cuCtxSetCurrent(context) == 0\n"
      "def load(head):\n"
      "  image = (head + '.address_size 64\\n.visible .entry k() { ret; }\\n').encode()\n"
      "  return cuda.cuModuleLoadData(ctypes.byref(module), image)\n"
      "assert load('.version 8.7\\n.target sm_120\\n') == 218\n"
      "assert load('.version 9.9\\n.target sm_90\\n') == 222\n"
      "assert load('.version 8.0\\n.target sm_90\\n') == 0\n";
  EXPECT_EQ(Run({GPULOOM_PYTHON, "-c", kProgram}), 0) << Errors();
  EXPECT_THAT(Errors(), ::testing::HasSubstr("gpuloom: an image does not load: ptx: made for "
                                             "sm_120, and this device is of sm_90\n"));
  EXPECT_THAT(Errors(), ::testing::HasSubstr("its .version is newer than 9.0"));
}

// softgpu runs PTX only: what nvcc makes by default for one architecture is machine code.
TEST_F(GpuloomRunWithCompiler, SaysThatMachineCodeNeedsAGpu) {
  EXPECT_EQ(RunWithCompiler("assert load(compiled(90)) == 209\n"), 0) << Errors();
  EXPECT_THAT(Errors(), ::testing::HasSubstr("gpuloom: an image does not load: "));
  EXPECT_THAT(Errors(), ::testing::HasSubstr("which softgpu cannot run"));
}

// For whoever asks why a program launches slowly.
TEST_F(GpuloomRun, AnExecutorLogsAtItsEndHowItLaunched) {
  constexpr char kProgram[] =
      "import ctypes\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "context, module, k = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()\n"
      "assert cuda.cuInit(0) == 0\n"
      "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
      "assert cuda.cuCtxSetCurrent(context) == 0\n"
      "image = b'.version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; "
      "}\\n'\n"
      "assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0\n"
      "assert cuda.cuModuleGetFunction(ctypes.byref(k), module, b'k') == 0\n"
      "for _ in range(20):\n"
      "  assert cuda.cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0\n"
      "assert cuda.cuCtxSynchronize() == 0\n";
  EXPECT_EQ(Run({GPULOOM_PYTHON, "-c", kProgram}), 0) << Errors();
  // The executor ends behind its last tenant.
  EXPECT_TRUE(Within(seconds(60), [&] {
    return std::regex_search(Read(state_ / "scheduler.log"),
                             std::regex("launches in all: chunks [0-9]+ replayed, [0-9]+ updated, "
                                        "[0-9]+ rewritten; [0-9]+ by singles, [0-9]+ plain\n"));
  })) << Read(state_ / "scheduler.log");
}

// As of a library that was built for other GPUs.
TEST_F(GpuloomRunWithCompiler, SaysWhichCodeAFatbinOfMachineCodeHolds) {
  constexpr char kProgram[] =
      "def member(sm):\n"
      "  cubin = compiled(sm)\n"
      "  code = cubin + bytes(-len(cubin) % 8)\n"
      "  header = (2, 0x101, 64, len(code), 0, 0, 0, 0, sm, 0, 0, 0, 0, 0)\n"
      "  return struct.pack('<HHIQIIHHIIIQQQ', *header) + code\n"
      "members = member(75) + member(80)\n"
      "assert load(struct.pack('<IHHQ', 0xba55ed50, 1, 16, len(members)) + members) == 209\n";
  EXPECT_EQ(RunWithCompiler(kProgram), 0) << Errors();
  EXPECT_THAT(Errors(),
              ::testing::HasSubstr("gpuloom: an image does not load: fatbin: no PTX for compute_90 "
                                   "or lower, which is all that softgpu runs; it holds sm_75, "
                                   "sm_80."));
}

TEST_F(GpuloomRun, SaysWhatAnOlderDriverLacks) {
  constexpr char kProgram[] =
      "import ctypes\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "function, version = ctypes.c_void_p(), ctypes.c_int()\n"
      "find = lambda name: cuda.cuGetProcAddress(name, ctypes.byref(function), 13000, "
      "ctypes.c_ulonglong(0))\n"
      "assert find(b'cuGreenCtxCreate') == 500\n"
      "assert find(b'cuLibraryLoadData') == 0\n"
      "assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0\n"
      "assert version.value == 12020, version.value\n"
      "assert cuda.cuInit(0) == 0\n";
  setenv("GPULOOM_SOFTGPU_DRIVER", "535", 1);
  EXPECT_EQ(Run({GPULOOM_PYTHON, "-c", kProgram}), 0) << Errors();
  unsetenv("GPULOOM_SOFTGPU_DRIVER");
  EXPECT_THAT(Errors(),
              ::testing::HasSubstr("gpuloom: the driver's CUDA version is 12.2, so these "
                                   "are off: from CUDA 12.3 on: conditional graph nodes"));
}

TEST_F(GpuloomRun, TheCommandsStatusIsOurs) {
  EXPECT_EQ(Run({"true"}), 0);
  EXPECT_EQ(Run({"sh", "-c", "exit 7"}), 7);
  EXPECT_EQ(Run({"sh", "-c", "kill -TERM $$"}), 128 + SIGTERM);
  EXPECT_EQ(Run({"/nowhere/program"}), 127);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("cannot run /nowhere/program"));
  EXPECT_EQ(Run({"/etc/passwd"}), 126);
  EXPECT_TRUE(Within(seconds(60), [&] { return !SchedulerRuns(); }))
      << "it ends when nobody uses it any more";
}

TEST_F(GpuloomRun, AnOrderToDrainThatComesWhileTheSchedulerIsAskedKeepsTheCommandOut) {
  std::filesystem::create_directories(state_);
  std::atomic<bool> was_removed = false;
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.0/run_3.1.txt"),
      [&](uint32_t type) {
        std::string error;
        if (type == control::kType<control::AddAllocation>) {
          EXPECT_TRUE(WriteDrainOrder(state_, {1, "new driver"}, &error)) << error;
        }
        if (type == control::kType<control::RemoveAllocation>) was_removed = true;
      });
  EXPECT_NE(Run({"touch", root_ / "began"}), 0);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("drained by operator: new driver"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "began"));
  EXPECT_TRUE(was_removed) << "before the command ends, and with it the connection";
}

// What the scheduler of another release has answered to today's command, word for word.
class RecordedSchedulers : public GpuloomRun, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Releases, RecordedSchedulers,
                         ::testing::Values("control_3.0/run_3.1", "control_3.1/run_3.2",
                                           "control_3.2/run_3.3", "control_3.3/run_3.4",
                                           "control_3.4/run_3.5", "control_3.5/run_3.6",
                                           "control_3.6/run_3.7", "control_3.7/run_3.8"),
                         [](const auto& name) {
                           return std::string(name.param).substr(8, 1) +
                                  std::string(name.param).substr(10, 1);
                         });

TEST_P(RecordedSchedulers, AreUsed) {
  std::filesystem::create_directories(state_);
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(std::string(GPULOOM_GOLDEN "/") + GetParam() + ".txt"));
  EXPECT_EQ(Run({"true"}), 0) << Errors();
  EXPECT_FALSE(scheduler.was_surprised());
  EXPECT_FALSE(SchedulerRuns()) << "it has started another one";
}

TEST_F(GpuloomRun, TheCommandFindsItsAllocation) {
  EXPECT_EQ(Run({"sh", "-c", "test -S $GPULOOM_SOCKET_DIR/gpuloom.sock && echo $LD_PRELOAD"}), 0);
  EXPECT_THAT(Output(), ::testing::EndsWith("/$LIB/libcuda.so.1\n"));
  // Its folder is gone with it.
  for (const auto& entry : std::filesystem::directory_iterator(state_)) {
    EXPECT_FALSE(entry.is_directory()) << entry.path();
  }
}

TEST_F(GpuloomRun, WhatWasPreloadedStays) {
  EXPECT_EQ(Run({"env", "LD_PRELOAD=libm.so.6", GPULOOM_PROGRAM, "run", "--softgpu", "--state-dir",
                 state_ / "inner", "--", "sh", "-c", "echo $LD_PRELOAD"}),
            0);
  EXPECT_THAT(Output(), ::testing::EndsWith("/$LIB/libcuda.so.1:libm.so.6\n"));
}

TEST_F(GpuloomRun, ACommandOfAnotherCLibraryRunsWithoutUs) {
  if (!std::filesystem::exists(GPULOOM_MUSL_PROGRAM)) {
    GTEST_SKIP() << "musl-gcc is not on this machine: deploy/install-deps.sh installs it";
  }
  EXPECT_EQ(Run({GPULOOM_MUSL_PROGRAM}), 0) << Errors();
  EXPECT_EQ(Output(), "0 libraries of CUDA\n");
  EXPECT_EQ(Errors(), "");
}

TEST_F(GpuloomRun, AStateFolderWithASpaceWillDo) {
  state_ = root_ / "a state";
  EXPECT_EQ(Run({GPULOOM_LIBRARY_PROBE}), 0) << Output() << Errors();
}

TEST_F(GpuloomRun, TheLibrariesThatProgramsLoadByNameAreOurs) {
  EXPECT_EQ(Run({GPULOOM_LIBRARY_PROBE}), 0) << Output() << Errors();
  EXPECT_EQ(Output(), "ok\n");
}

TEST_F(GpuloomRun, AProgramThatUsesNoNvmlDoesNotLoadIt) {
  EXPECT_EQ(Run({"grep", "-c", "libgpuloom-nvml", "/proc/self/maps"}), 1);
  EXPECT_EQ(Output(), "0\n");
}

TEST_F(GpuloomRun, AProgramOfPythonsUsesTheDriver) {
  EXPECT_EQ(Run({GPULOOM_PYTHON, GPULOOM_DRIVER_PROGRAM}), 0) << Output() << Errors();
}

TEST_F(GpuloomRun, ALibraryPathStaysBehindOurs) {
  setenv("LD_LIBRARY_PATH", "/theirs:/and/theirs", 1);
  const int status = Run({"sh", "-c", "echo $LD_LIBRARY_PATH; echo $GPULOOM_SOCKET_DIR"});
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(status, 0);
  std::istringstream lines(Output());
  std::string path, folder;
  std::getline(lines, path);
  std::getline(lines, folder);
  EXPECT_EQ(path, folder + "/lib:/theirs:/and/theirs");
}

TEST_F(GpuloomRun, OneInsideAnotherHasItsOwnLibrariesOnly) {
  EXPECT_EQ(Run({"env", "GPULOOM_LOG=info", GPULOOM_PROGRAM, "run", "--softgpu", "--state-dir",
                 state_ / "inner", "--", "sh", "-c",
                 std::string("echo $LD_LIBRARY_PATH; echo $GPULOOM_SOCKET_DIR; exec ") +
                     GPULOOM_LIBRARY_PROBE}),
            0)
      << Output() << Errors();
  std::istringstream lines(Output());
  std::string path, folder;
  std::getline(lines, path);
  std::getline(lines, folder);
  EXPECT_EQ(path, folder + "/lib");
  EXPECT_THAT(folder, ::testing::HasSubstr("/inner/"));
}

TEST_F(GpuloomRun, AStateFolderThatTheLoaderWouldSplitIsRefused) {
  state_ = root_ / "a:b";
  EXPECT_EQ(Run({"true"}), 125);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("a:b would be split"));
}

TEST_F(GpuloomRun, ASignalIsPassedOn) {
  const pid_t pid =
      Start({"sh", "-c", "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.02; done"});
  ASSERT_TRUE(Within(seconds(60), [&] { return Output().find("ready") != std::string::npos; }));
  kill(pid, SIGUSR1);
  EXPECT_EQ(Wait(pid), 3);
  EXPECT_THAT(Output(), ::testing::HasSubstr("got"));
}

// For a shell: waits for this file.
std::string Until(const std::string& file) {
  return "while [ ! -e " + file + " ]; do sleep 0.02; done";
}

TEST_F(GpuloomRun, ManyAtOnceShareOneScheduler) {
  std::vector<pid_t> runs;
  const std::string go = root_ / "go";
  for (int i = 0; i < 8; ++i) {
    runs.push_back(Start({"sh", "-c", "touch " + go + std::to_string(i) + "; " + Until(go)}));
  }
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(
        Within(seconds(60), [&] { return std::filesystem::exists(go + std::to_string(i)); }));
  }
  std::ofstream{go};
  for (const pid_t run : runs) EXPECT_EQ(Wait(run), 0);
  const std::string log = Read(state_ / "scheduler.log");
  const auto count = [&log](const char* text) {
    size_t found = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("serves gpuloom softgpu"), 1u) << log;
  // Each has tried once at the most: the first to lock serves all.
  EXPECT_LE(count("another scheduler holds"), runs.size()) << log;
}

TEST_F(GpuloomRun, OneAfterTheOtherFindsASchedulerEachTime) {
  // The one before may be ending right now.
  for (int i = 0; i < 10; ++i) {
    const pid_t first = Start({"true"});
    const pid_t second = Start({"true"});
    EXPECT_EQ(Wait(first), 0);
    EXPECT_EQ(Run({"true"}), 0);
    EXPECT_EQ(Wait(second), 0);
  }
  EXPECT_EQ(Errors(), "");
}

TEST_F(GpuloomRun, ASoftwareGpuWithOtherSettingsIsNotUsed) {
  constexpr char kTotal[] =
      "import ctypes\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "total = ctypes.c_size_t()\n"
      "assert cuda.cuInit(0) == 0\n"
      "assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0\n"
      "print(total.value >> 20)\n";
  const auto start = [&](const char* memory, std::vector<std::string> command) {
    setenv("GPULOOM_SOFTGPU_MEMORY", memory, 1);
    const pid_t pid = Start(std::move(command), {"--slots", "10"});
    unsetenv("GPULOOM_SOFTGPU_MEMORY");
    return pid;
  };
  const std::string go = root_ / "go";
  const pid_t first = start("1GiB", {"sh", "-c", "echo ready; " + Until(go)});
  ASSERT_TRUE(Within(seconds(60), [&] { return Output().find("ready") != std::string::npos; }));
  EXPECT_EQ(Wait(start("2GiB", {"true"})), 125);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("GPULOOM_SOFTGPU_MEMORY=1GiB"));
  EXPECT_EQ(Wait(start("1GiB", {"true"})), 0);
  std::ofstream{go};
  EXPECT_EQ(Wait(first), 0);
  // One that is about to end is waited for.
  EXPECT_EQ(Wait(start("2GiB", {GPULOOM_PYTHON, "-c", kTotal})), 0) << Errors();
  EXPECT_EQ(Wait(start("4GiB", {GPULOOM_PYTHON, "-c", kTotal})), 0) << Errors();
  EXPECT_THAT(Output(), ::testing::HasSubstr("1790\n3582\n"));
}

TEST_F(GpuloomRun, WhenItIsKilledNothingIsLeft) {
  const pid_t pid = Start({"sh", "-c", "echo ready; exec sleep 1"});
  ASSERT_TRUE(Within(seconds(60), [&] { return Output().find("ready") != std::string::npos; }));
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid), 1000 + SIGKILL);
  EXPECT_TRUE(Within(seconds(60), [&] { return !SchedulerRuns(); }));
}

TEST_F(GpuloomRun, ASchedulerThatDiesIsNamedAndTheNextRunStartsAnother) {
  const std::string go = root_ / "go";
  const pid_t pid = Start({"sh", "-c", "echo ready; " + Until(go) + "; exit 4"});
  ASSERT_TRUE(Within(seconds(60), [&] { return Output().find("ready") != std::string::npos; }));
  kill(SchedulerPid(), SIGKILL);
  EXPECT_TRUE(Within(seconds(60), [&] {
    return Errors().find("the scheduler is gone") != std::string::npos;
  })) << Errors();
  std::ofstream{go};
  EXPECT_EQ(Wait(pid), 4);
  EXPECT_EQ(Run({"true"}), 0);
}

TEST_F(GpuloomRun, MoreMemoryThanTheGpuHasIsRefused) {
  EXPECT_EQ(Run({"true"}, {"--memory", "1000GiB"}), 125);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("the GPU has 16384 MiB"));
}

TEST_F(GpuloomRun, AMachineWithoutADriverIsToldAboutTheSoftwareGpu) {
  if (access("/proc/driver/nvidia/version", F_OK) == 0) GTEST_SKIP() << "this machine has a driver";
  softgpu_ = false;
  EXPECT_EQ(Run({"true"}), 125);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("no NVIDIA driver found"));
  EXPECT_THAT(Errors(), ::testing::HasSubstr("use --softgpu"));
}

TEST_F(GpuloomRun, AGpuThatDoesNotExistIsNamed) {
  setenv("GPULOOM_SOFTGPU_DEVICES", "0", 1);
  EXPECT_EQ(Run({"true"}), 125);
  unsetenv("GPULOOM_SOFTGPU_DEVICES");
  EXPECT_THAT(Errors(), ::testing::HasSubstr("no GPU to use"));
}

TEST_F(GpuloomRun, ALongStateFolderWorks) {
  state_ = root_ / std::string(150, 'a') / std::string(150, 'b');
  EXPECT_EQ(Run({"sh", "-c", "test -S $GPULOOM_SOCKET_DIR/gpuloom.sock"}), 0) << Errors();
}

TEST_F(GpuloomRun, AStateFolderThatIsOpenToAllIsRefused) {
  std::filesystem::create_directory(state_);
  chmod(state_.c_str(), 0777);
  EXPECT_EQ(Run({"true"}), 125);
  EXPECT_THAT(Errors(), ::testing::HasSubstr("open to all"));
}

TEST_F(GpuloomRun, WhatATenantCompiledIsFoundByTheNext) {
  if (access(GPULOOM_CUDA_LIBRARIES "/libnvrtc.so", F_OK) != 0) {
    GTEST_SKIP() << "no NVRTC in " GPULOOM_CUDA_LIBRARIES;
  }
  setenv("CUDA_CACHE_PATH", (root_ / "cache").c_str(), 1);
  const std::vector<std::string> command = {GPULOOM_PYTHON, GPULOOM_COMPILING_TENANT,
                                            GPULOOM_CUDA_LIBRARIES};
  EXPECT_EQ(Run(command), 0) << Errors();
  const std::string first = Output();
  EXPECT_THAT(first, ::testing::HasSubstr("added cubin cache entry to driver cache"));
  EXPECT_EQ(Run(command), 0) << Errors();
  const std::string second = Output().substr(first.size());
  EXPECT_THAT(second, ::testing::HasSubstr("retrieved cached cubin from driver cache"));
  EXPECT_THAT(second, ::testing::Not(::testing::HasSubstr("Cache miss")));
  // The last line: the same was made.
  EXPECT_THAT(second, ::testing::EndsWith(first.substr(first.rfind('\n', first.size() - 2))));
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  EXPECT_EQ(Run(command), 0) << Errors();
  unsetenv("CUDA_CACHE_DISABLE");
  unsetenv("CUDA_CACHE_PATH");
  EXPECT_THAT(Output().substr(first.size() + second.size()),
              ::testing::EndsWith(first.substr(first.rfind('\n', first.size() - 2))));
  EXPECT_EQ(Errors(), "");
}

TEST(StateDir, FollowsTheRuntimeFolderOrTheUser) {
  char name[] = "/tmp/gpuloom-run-test-XXXXXX";
  const std::string runtime = mkdtemp(name);
  setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  EXPECT_EQ(DefaultStateDir("gpu0"), runtime + "/gpuloom/gpu0");
  setenv("XDG_RUNTIME_DIR", (runtime + "/missing").c_str(), 1);
  EXPECT_EQ(DefaultStateDir("gpu0"), "/tmp/gpuloom-" + std::to_string(geteuid()) + "/gpu0");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultStateDir("softgpu"), "/tmp/gpuloom-" + std::to_string(geteuid()) + "/softgpu");
  std::filesystem::remove_all(runtime);
}

TEST(StateDir, IsThatOfTheServiceWhereThisUserMayUseIt) {
  char name[] = "/tmp/gpuloom-run-test-XXXXXX";
  const std::string service = mkdtemp(name);
  const std::string own = DefaultStateDir("gpu0", service + "/missing");
  std::filesystem::create_directory(service + "/gpu0");
  EXPECT_EQ(DefaultStateDir("gpu0", service), own) << "no scheduler";
  std::ofstream(service + "/gpu0/control.sock") << "";
  EXPECT_EQ(DefaultStateDir("gpu0", service), service + "/gpu0");
  EXPECT_EQ(DefaultStateDir("gpu1", service), own.substr(0, own.rfind('/')) + "/gpu1");
  std::filesystem::remove_all(service);
}

}  // namespace
}  // namespace gpuloom::run
