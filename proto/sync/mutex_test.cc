// SPDX-License-Identifier: Apache-2.0
#include "proto/sync/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "proto/sync/cond_var.h"

namespace gpuloom {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(MutexTest, OneAtATime) {
  struct {
    Mutex mutex;
    int count GPULOOM_GUARDED_BY(mutex) = 0;
  } counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int n = 0; n < 10'000; ++n) {
        MutexLock lock(counter.mutex);
        ++counter.count;
        if (n % 2 == 0) continue;
        lock.Unlock();
        lock.Lock();
        ++counter.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, 60'000);
}

bool IsFree(Mutex& mutex) {
  if (!mutex.TryLock()) return false;
  mutex.Unlock();
  return true;
}

TEST(MutexTest, TryLockDoesNotWait) {
  Mutex mutex;
  mutex.Lock();
  std::thread([&mutex] { EXPECT_FALSE(IsFree(mutex)); }).join();
  mutex.Unlock();
  EXPECT_TRUE(IsFree(mutex));
}

TEST(MutexTest, WhatWasLetGoIsNotGivenBackTwice) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    lock.Unlock();
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(SharedMutexTest, ReadersTogetherWriterAlone) {
  SharedMutex mutex;
  std::atomic<bool> written{false};
  std::thread writer;
  {
    const ReaderLock lock(mutex);
    std::thread([&mutex] { const ReaderLock another(mutex); }).join();
    writer = std::thread([&] {
      const WriterLock alone(mutex);
      written = true;
    });
    EXPECT_FALSE(written);
  }
  writer.join();
  EXPECT_TRUE(written);
}

struct Box {
  Mutex mutex;
  CondVar changed;
  bool is_full GPULOOM_GUARDED_BY(mutex) = false;
};

TEST(CondVarTest, SeesWhatAnotherThreadHasDone) {
  Box box;
  std::thread other([&box] {
    {
      const MutexLock lock(box.mutex);
      box.is_full = true;
    }
    box.changed.NotifyOne();
  });
  {
    const MutexLock lock(box.mutex);
    box.changed.Wait(box.mutex, [&box]() GPULOOM_REQUIRES(box.mutex) { return box.is_full; });
    EXPECT_TRUE(box.changed.WaitFor(box.mutex, hours(1),
                                    [&box]() GPULOOM_REQUIRES(box.mutex) { return box.is_full; }));
  }
  other.join();
}

TEST(CondVarTest, ComesBackWhenTheTimeIsOver) {
  Box box;
  const MutexLock lock(box.mutex);
  const auto start = CondVar::Clock::now();
  EXPECT_FALSE(box.changed.WaitFor(box.mutex, milliseconds(3),
                                   [&box]() GPULOOM_REQUIRES(box.mutex) { return box.is_full; }));
  EXPECT_GE(CondVar::Clock::now() - start, milliseconds(3));
  EXPECT_FALSE(box.changed.WaitUntil(box.mutex, start));
}

}  // namespace
}  // namespace gpuloom
