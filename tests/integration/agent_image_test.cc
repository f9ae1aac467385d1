// SPDX-License-Identifier: Apache-2.0
// Containers of images that gpuloom did not expect: what Allocate gives must do no harm to a program
// that cannot use it, and reach every one that can. Each image is a folder with a C library's
// loader and a program, in which the program runs by chroot; what Allocate has mounted is copied to
// where it would be mounted, and the environment is Allocate's and nothing else.
//
// The loaders are this machine's. Of glibc that is Debian's, whose only difference to other
// distributions' that matters here is the name it has for $LIB: a string in the file, which is
// exchanged for theirs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;

constexpr uid_t kNobody = 65534;
constexpr char kMuslLoader[] = "/lib/ld-musl-x86_64.so.1";
constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
constexpr char kLibc[] = "/lib/x86_64-linux-gnu/libc.so.6";
constexpr char kLoader32[] = "/lib/ld-linux.so.2";
constexpr char kLibc32[] = "/lib32/libc.so.6";
constexpr char kInstall[] = " is not on this machine: deploy/install-deps.sh installs it";

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Ran {
  int exit_code = -1;  // -1: ended by a signal
  std::string output;
  std::string errors;
};

class AgentImage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0 && !MayHaveAUserNamespace()) {
      GTEST_SKIP() << "neither root nor allowed to make user namespaces: no chroot";
    }
    ASSERT_TRUE(node_.kubelet().Start().ok());
    node_.StartAgent();
    ASSERT_TRUE(node_.kubelet().WaitForDevices(10, std::chrono::seconds(60)).ok())
        << node_.AgentLog();
    const auto pod = node_.kubelet().Admit({"team-a", "p", {{"main", 1, false}}});
    ASSERT_TRUE(pod.ok()) << pod.status();
    container_ = pod->containers[0];
    std::string name = "/tmp/gpuloom-image-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    ASSERT_EQ(chmod(name.c_str(), 0755), 0);
    image_ = name;
    root_ = name + "/root";
  }
  void TearDown() override {
    if (!image_.empty()) fs::remove_all(image_);
  }
  static bool MayHaveAUserNamespace() {
    const pid_t child = fork();
    if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
  }

  // A file of this machine in the image.
  void Put(const std::string& file, const std::string& path) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    fs::copy_file(fs::canonical(file), root_ + path, fs::copy_options::overwrite_existing);
  }
  // `lib` stands for $LIB; false when this machine's loader is not Debian's.
  bool PutGlibc(const std::string& lib) {
    if (!fs::exists(kLoader) || !fs::exists(kLibc)) return false;
    Put(kLibc, kLibc);
    std::string loader = Read(kLoader);
    const std::string debians("\0lib/x86_64-linux-gnu\0", 22);
    const size_t at = loader.find(debians);
    if (at == std::string::npos || loader.find(debians, at + 1) != std::string::npos) return false;
    std::string theirs = '\0' + lib;
    theirs.resize(debians.size());
    loader.replace(at, debians.size(), theirs);
    fs::create_directories(fs::path(root_ + kLoader).parent_path());
    std::ofstream(root_ + kLoader) << loader;
    return chmod((root_ + kLoader).c_str(), 0755) == 0;
  }

  // `program` of this machine, with what Allocate gave.
  Ran Run(const std::string& program, uid_t user = 0, mode_t mode = 0755) {
    for (const FakeMount& mount : container_.mounts) {
      if (fs::is_regular_file(mount.host_path)) Put(mount.host_path, mount.container_path);
    }
    Put(program, "/program");
    EXPECT_EQ(chmod((root_ + "/program").c_str(), mode), 0);
    std::vector<std::string> entries;
    for (const auto& [name, value] : container_.envs) entries.push_back(name + "=" + value);
    std::vector<char*> envp;
    for (std::string& entry : entries) envp.push_back(entry.data());
    envp.push_back(nullptr);
    const std::string out = image_ + "/out", err = image_ + "/err";
    const pid_t child = fork();
    if (child == 0) {
      const int out_fd = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err_fd = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) _exit(101);
      if (chroot(root_.c_str()) != 0 || chdir("/") != 0) _exit(102);
      if (user != 0 && (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
                        setresuid(user, user, user) != 0)) {
        _exit(103);
      }
      dup2(out_fd, 1);
      dup2(err_fd, 2);
      char* argv[] = {const_cast<char*>("/program"), nullptr};
      execve(argv[0], argv, envp.data());
      _exit(104);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read(out), Read(err)};
  }

  AgentNode node_{1, 10, GPULOOM_SHIM_PATH};
  FakeContainer container_;
  std::string image_;
  std::string root_;
};

TEST_F(AgentImage, OfMuslRunsAsIfNothingWereThere) {
  if (!fs::exists(GPULOOM_IMAGES "/program_musl")) GTEST_SKIP() << "musl-gcc" << kInstall;
  Put(kMuslLoader, kMuslLoader);
  const Ran ran = Run(GPULOOM_IMAGES "/program_musl");
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_EQ(ran.output, "0 libraries of CUDA\n");
  EXPECT_EQ(ran.errors, "");
}

TEST_F(AgentImage, OfGlibcHasTheShimWhateverItsDistributionIs) {
  // Debian and Ubuntu; Red Hat, SUSE, Amazon, Gentoo; Arch, Nix, Void, Wolfi.
  for (const char* lib : {"lib/x86_64-linux-gnu", "lib64", "lib"}) {
    SCOPED_TRACE(lib);
    if (!PutGlibc(lib)) GTEST_SKIP() << "this machine's glibc is not Debian's";
    const Ran ran = Run(GPULOOM_IMAGES "/program_glibc");
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_EQ(ran.output, "1 libraries of CUDA\n");
    EXPECT_EQ(ran.errors, "");
    fs::remove_all(root_);
  }
}

TEST_F(AgentImage, WithoutACLibraryRuns) {
  const Ran ran = Run(GPULOOM_IMAGES "/program_static");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.output, "0 libraries of CUDA\n");
  EXPECT_EQ(ran.errors, "");
}

TEST_F(AgentImage, WithoutACLibraryHasGpuloomTrace) {
  const Ran ran = Run(container_.HostPath("/usr/local/bin/gpuloom-trace"));
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.output, "");
  EXPECT_THAT(ran.errors, ::testing::StartsWith("gpuloom-trace: --seconds and -o are needed\n"));
}

TEST_F(AgentImage, WithASetuidProgramRunsItWithoutAWord) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program that is";
  if (!PutGlibc("lib64")) GTEST_SKIP() << "this machine's glibc is not Debian's";
  const Ran ran = Run(GPULOOM_IMAGES "/program_glibc", kNobody, 04755);
  EXPECT_EQ(ran.exit_code, 0);
  if (!ran.output.starts_with("secure")) GTEST_SKIP() << "/tmp is mounted nosuid";
  EXPECT_EQ(ran.output, "secure, 0 libraries of CUDA\n");
  EXPECT_EQ(ran.errors, "");
}

TEST_F(AgentImage, WithA32BitProgramRunsItWithoutAWord) {
  if (!fs::exists(GPULOOM_IMAGES "/program_32")) GTEST_SKIP() << kLibc32 << kInstall;
  Put(kLoader32, kLoader32);
  Put(kLibc32, kLibc32);
  const Ran ran = Run(GPULOOM_IMAGES "/program_32");
  if (ran.exit_code == 104) GTEST_SKIP() << "this kernel runs no 32-bit programs";
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.output, "a 32-bit program\n");
  EXPECT_EQ(ran.errors, "");
}

// What the others tell apart: a preloaded library that is there and cannot be of use.
TEST_F(AgentImage, OfMuslWouldNotStartWithThePathSpeltOut) {
  if (!fs::exists(GPULOOM_IMAGES "/program_musl")) GTEST_SKIP() << "musl-gcc" << kInstall;
  Put(kMuslLoader, kMuslLoader);
  container_.envs["LD_PRELOAD"] = "/usr/local/nvidia/lib64/libcuda.so.1";
  const Ran ran = Run(GPULOOM_IMAGES "/program_musl");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.errors, ::testing::HasSubstr("ld-linux-x86-64.so.2"));
}

}  // namespace
}  // namespace gpuloom
