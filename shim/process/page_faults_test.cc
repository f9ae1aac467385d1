// SPDX-License-Identifier: Apache-2.0
#include "shim/process/page_faults.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace gpuloom {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPages = 16;

// One for the process, as there is one handler: what was touched last, and whether the handler lets touchers go on.
std::atomic<uint64_t> touched{0};
std::atomic<int> faults{0};
std::atomic<bool> admits{true};

void OnFault(uint64_t address) {
  touched = address / kPage * kPage;
  ++faults;
  if (admits) AdmitPages(touched, kPage);
}

class PageFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    told = StartPageFaults(&OnFault);
    why = errno;
  }
  void SetUp() override {
    if (!told) GTEST_SKIP() << "the kernel tells this process of no page faults: " << strerror(why);
    const int memory = memfd_create("pages", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(memory, kPages * kPage), 0);
    for (uint8_t** view : {&seen_, &other_}) {
      *view = static_cast<uint8_t*>(
          mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
      ASSERT_NE(*view, MAP_FAILED);
    }
    close(memory);
    for (uint64_t page = 0; page < kPages; ++page) other_[page * kPage] = Content(page);
    faults = 0;
    admits = true;
    ASSERT_TRUE(WatchPages(Begin(), kPages * kPage));
    ASSERT_TRUE(HidePages(Begin(), kPages * kPage));
  }
  void TearDown() override {
    if (seen_ == nullptr) return;
    UnwatchPages(Begin(), kPages * kPage);
    munmap(seen_, kPages * kPage);
    munmap(other_, kPages * kPage);
  }
  uint64_t Begin() const { return reinterpret_cast<uint64_t>(seen_); }
  static uint8_t Content(uint64_t page) { return static_cast<uint8_t>(page + 3); }
  uint8_t Look(uint64_t page) const { return static_cast<volatile uint8_t*>(seen_)[page * kPage]; }

  static bool told;
  static int why;
  uint8_t* seen_ = nullptr;   // watched
  uint8_t* other_ = nullptr;  // the same memory
};
bool PageFaults::told = false;
int PageFaults::why = 0;

TEST_F(PageFaults, ATouchIsToldOnceAndFindsTheContent) {
  EXPECT_EQ(Look(3), Content(3));
  EXPECT_EQ(touched, Begin() + 3 * kPage);
  EXPECT_EQ(Look(3), Content(3));
  seen_[3 * kPage + 1] = 9;
  EXPECT_EQ(faults, 1);
  EXPECT_EQ(other_[3 * kPage + 1], 9);
  ASSERT_TRUE(HidePages(Begin() + 3 * kPage, kPage));
  EXPECT_EQ(Look(3), Content(3));
  EXPECT_EQ(faults, 2);
}

TEST_F(PageFaults, SystemCallsWaitToo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], seen_ + 5 * kPage, 1), 1);
  EXPECT_EQ(touched, Begin() + 5 * kPage);
  EXPECT_EQ(read(ends[0], seen_ + 6 * kPage, 1), 1);
  EXPECT_EQ(faults, 2);
  EXPECT_EQ(other_[6 * kPage], Content(5));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(PageFaults, PagesThatAreAdmittedAlreadyDoNotKeepOthersFrom) {
  AdmitPages(Begin() + 2 * kPage, kPage);
  AdmitPages(Begin(), kPages * kPage);
  for (uint64_t page = 0; page < kPages; ++page) EXPECT_EQ(Look(page), Content(page));
  EXPECT_EQ(faults, 0);
}

TEST_F(PageFaults, WhoeverWaitsGoesOnWhenNobodyWatchesAnyMore) {
  admits = false;
  std::thread toucher([this] { EXPECT_EQ(Look(7), Content(7)); });
  while (faults == 0) std::this_thread::yield();
  UnwatchPages(Begin(), kPages * kPage);
  toucher.join();
  EXPECT_EQ(Look(8), Content(8));
  EXPECT_EQ(faults, 1);
}

}  // namespace
}  // namespace gpuloom
