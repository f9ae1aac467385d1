// SPDX-License-Identifier: Apache-2.0
// Each body runs in a process of its own: what handles a process's faults is not undone.
#include "shim/process/write_fence.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace gpuloom {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSize = 8 * kPage;

uint8_t* Map(int protection = PROT_READ | PROT_WRITE) {
  void* memory = mmap(nullptr, kSize, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}
// ThreadSanitizer cannot see that pages are replaced only while no thread writes there.
std::atomic_ref<uint32_t> Word(uint8_t* at) {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(at));
}
uint64_t AddressOf(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// The body's exit status, or 1000 and the signal that ended it. A body that hangs ends by itself.
int InChild(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Replaces the pages by others with the same content, as the fence's users do.
bool Replace(uint8_t* pages) {
  uint8_t* fresh = Map();
  if (fresh == nullptr || !RaiseFence(AddressOf(pages), kSize)) return false;
  for (size_t at = 0; at < kSize; at += sizeof(uint32_t)) {
    Word(fresh + at).store(Word(pages + at).load(std::memory_order_relaxed));
  }
  const bool done = mremap(fresh, kSize, kSize, MREMAP_MAYMOVE | MREMAP_FIXED, pages) != MAP_FAILED;
  LowerFence();
  return done;
}

TEST(WriteFence, WritersWaitAndLoseNothing) {
  EXPECT_EQ(InChild([] {
              auto* pages = Map();
              std::atomic<bool> stop{false};
              uint32_t rounds[2] = {};
              const auto write = [&](int i) {
                for (; !stop; ++rounds[i]) {
                  for (size_t at = 4 * i; at < kSize; at += kPage) {
                    // The fence may come between the two.
                    const uint32_t was = Word(pages + at).load(std::memory_order_relaxed);
                    Word(pages + at).store(was + 1, std::memory_order_relaxed);
                  }
                }
              };
              std::thread first(write, 0), second(write, 1);
              bool replaced = true;
              for (int i = 0; i < 300; ++i) replaced &= Replace(pages);
              stop = true;
              first.join();
              second.join();
              if (!replaced) return 1;
              for (size_t at = 0; at < kSize; at += kPage) {
                const auto* words = reinterpret_cast<const uint32_t*>(pages + at);
                if (words[0] != rounds[0] || words[1] != rounds[1]) return 2;
              }
              return 0;
            }),
            0);
}

sigjmp_buf back;
std::atomic<int> handled{0};
void Leave(int) {
  ++handled;
  siglongjmp(back, 1);
}
void MakeWritable(int, siginfo_t* info, void*) {
  ++handled;
  mprotect(reinterpret_cast<void*>(AddressOf(info->si_addr) & ~(kPage - 1)), kPage,
           PROT_READ | PROT_WRITE);
}

TEST(WriteFence, FaultsOfTheProgramGoToItsHandler) {
  EXPECT_EQ(InChild([] {
              struct sigaction action = {};
              action.sa_sigaction = &MakeWritable;
              action.sa_flags = SA_SIGINFO;
              sigaction(SIGSEGV, &action, nullptr);
              auto* pages = Map();
              if (!Replace(pages)) return 1;
              // Where there was a fence once, and where there was none.
              auto* others = Map(PROT_READ);
              mprotect(pages, kSize, PROT_READ);
              pages[0] = 1;
              pages[kPage] = 1;
              others[5] = 1;
              return handled == 3 ? 0 : 2;
            }),
            0);
  EXPECT_EQ(InChild([] {
              signal(SIGSEGV, &Leave);
              auto* pages = Map();
              if (!Replace(pages)) return 1;
              for (static int i = 0; i < 3; ++i) {
                if (sigsetjmp(back, 1) == 0) *reinterpret_cast<volatile int*>(8) = 1;
              }
              return handled == 3 ? 0 : 2;
            }),
            0);
}

TEST(WriteFence, WithoutAHandlerFaultsEndTheProcess) {
  const int segv = 1000 + SIGSEGV;
  EXPECT_EQ(InChild([] {
              signal(SIGSEGV, SIG_DFL);
              auto* pages = Map();
              if (!Replace(pages)) return 1;
              mprotect(pages, kSize, PROT_READ);
              pages[0] = 1;
              return 2;
            }),
            segv);
  EXPECT_EQ(InChild([] {
              signal(SIGSEGV, SIG_DFL);
              if (!Replace(Map())) return 1;
              raise(SIGSEGV);
              return 2;
            }),
            segv);
  EXPECT_EQ(InChild([] {
              signal(SIGSEGV, SIG_IGN);
              if (!Replace(Map())) return 1;
              raise(SIGSEGV);  // only sent: ignored
              return 0;
            }),
            0);
}

TEST(WriteFence, ThereIsNoneWhereAnotherHandlerHasReplacedOurs) {
  EXPECT_EQ(InChild([] {
              auto* pages = Map();
              if (!Replace(pages)) return 1;
              signal(SIGSEGV, &Leave);
              if (RaiseFence(AddressOf(pages), kSize)) return 2;
              pages[0] = 1;  // nothing has changed
              return handled == 0 ? 0 : 3;
            }),
            0);
}

TEST(WriteFence, ThereIsNoneForWhatIsNotMapped) {
  EXPECT_EQ(InChild([] {
              auto* pages = Map();
              munmap(pages + kSize / 2, kSize / 2);
              if (RaiseFence(AddressOf(pages), kSize)) return 1;
              pages[0] = 1;
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace gpuloom
