// SPDX-License-Identifier: Apache-2.0
#include "shim/process/locked_memory.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace gpuloom {
namespace {

constexpr size_t kLockedBytes = 64 << 10;

// In a child, whose groups and locks end with it: 0 if it finds what it has locked.
int LocksAndReads(size_t group_count) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<gid_t> groups;
    for (size_t i = 0; i < group_count; ++i) groups.push_back(static_cast<gid_t>(100'000 + i));
    if (setgroups(groups.size(), groups.data()) != 0) _exit(77);
    LockedMemory before = {}, after = {};
    if (!ReadLockedMemory(&before)) _exit(1);
    void* memory =
        mmap(nullptr, kLockedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Past the sanitizers, which make nothing of mlock.
    if (syscall(SYS_mlock, memory, kLockedBytes) != 0) _exit(77);
    if (!ReadLockedMemory(&after)) _exit(2);
    _exit(after.locked_kib == before.locked_kib + kLockedBytes / 1024 ? 0 : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Their line, longer than what is read at once, comes before those of locked memory: at every place
// where a piece may end.
TEST(LockedMemory, IsFoundBehindAnyNumberOfGroups) {
  for (const size_t count : {0, 3, 300, 500, 1000, 5000}) {
    for (size_t more = 0; more < (count == 500 ? 100 : 1); ++more) {
      const int result = LocksAndReads(count + more);
      if (result == 77) GTEST_SKIP() << "groups or locked memory are not this process's to set";
      ASSERT_EQ(result, 0) << count + more << " groups";
    }
  }
}

}  // namespace
}  // namespace gpuloom
