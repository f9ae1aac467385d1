// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/file_access.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "agent/executor/process/sanitized.h"

namespace gpuloom::executor {
namespace {

class FileAccess : public ::testing::Test {
 protected:
  FileAccess() {
    constexpr long kCreateRuleset = 444;
    version_ = syscall(kCreateRuleset, nullptr, 0, 1);
    char name[] = "/tmp/gpuloom-file-access-XXXXXX";
    root_ = mkdtemp(name);
    for (const char* folder : {"read", "written", "own", "outside"}) {
      std::filesystem::create_directory(root_ / folder);
      std::ofstream(root_ / folder / "file") << "text\n";
    }
  }
  ~FileAccess() override { std::filesystem::remove_all(root_); }

  // What `body` returns in a process that reaches only these; 100 when it could not be restricted.
  template <typename F>
  int Restricted(F body) const {
    const pid_t child = fork();
    if (child == 0) {
      std::string why;
      const ReachableFiles files{{root_ / "read", root_ / "missing"},
                                 {root_ / "written", "/proc/self/task"},
                                 {"/dev/null"},
                                 {root_ / "own"}};
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      _exit(RestrictFiles(files, &why) > 0 ? body() : 100);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
  }

  bool Opens(const std::string& name, int flags) const {
    const int fd = open((root_ / name).c_str(), flags | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }

  std::filesystem::path root_;
  long version_;
};

TEST_F(FileAccess, OnlyWhatIsNamedIsReached) {
  if (version_ <= 0 || kSanitized) GTEST_SKIP() << "no Landlock here";
  EXPECT_EQ(Restricted([&] {
              if (!Opens("read/file", O_RDONLY)) return 1;
              if (Opens("read/file", O_WRONLY) || Opens("read/new", O_WRONLY | O_CREAT)) return 2;
              if (!Opens("own/file", O_RDWR) || !Opens("own/new", O_WRONLY | O_CREAT)) return 3;
              if (mkdir((root_ / "own/folder").c_str(), 0700) != 0) return 4;
              if (unlink((root_ / "own/file").c_str()) != 0) return 5;
              if (Opens("outside/file", O_RDONLY) || Opens("outside/file", O_WRONLY)) return 6;
              if (unlink((root_ / "outside/file").c_str()) == 0) return 7;
              if (symlink("/", (root_ / "own/link").c_str()) == 0) return 8;
              if (open("/dev/null", O_RDWR) < 0) return 9;
              if (open("/dev/zero", O_RDONLY) >= 0) return 10;
              if (!Opens("written/file", O_RDWR) || Opens("written/new", O_WRONLY | O_CREAT)) {
                return 11;
              }
              return 0;
            }),
            0);
}

TEST_F(FileAccess, ThreadsCanBeNamed) {
  if (version_ <= 0 || kSanitized) GTEST_SKIP() << "no Landlock here";
  EXPECT_EQ(Restricted([] {
              std::promise<void> named;
              std::thread other([&] { named.get_future().wait(); });
              const int result = pthread_setname_np(other.native_handle(), "driver");
              named.set_value();
              other.join();
              return result;
            }),
            0);
}

TEST_F(FileAccess, OthersAreNotSignalled) {
  constexpr long kScopes = 6;  // the first version that keeps signals in
  if (version_ < kScopes || kSanitized) GTEST_SKIP() << "Landlock does not know signals here";
  EXPECT_EQ(Restricted([] {
              if (kill(getppid(), 0) == 0) return 1;
              return kill(getpid(), 0) == 0 ? 0 : 2;
            }),
            0);
}

TEST_F(FileAccess, AKernelWithoutItIsSaid) {
  if (version_ > 0) GTEST_SKIP() << "this one has it";
  std::string why;
  EXPECT_EQ(RestrictFiles({}, &why), 0);
  EXPECT_NE(why.find("the kernel has none"), std::string::npos) << why;
}

TEST(LibraryFolders, AreThoseOfTheFileAndOfWhatItsNameLeadsTo) {
  if (kSanitized) GTEST_SKIP() << "functions of libc are the sanitizer's there";
  std::vector<std::string> folders;
  AddLibraryFolders(reinterpret_cast<const void*>(&prctl), &folders);
  ASSERT_EQ(folders.size(), 2u);
  for (const std::string& folder : folders) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/libc.so.6")) << folder;
  }
}

}  // namespace
}  // namespace gpuloom::executor
